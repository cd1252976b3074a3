// Links of docs/ are between files. On the site some of them lead elsewhere.
import fs from 'node:fs'
import path from 'node:path'

const repository = 'https://github.com/cnibox/cnibox'
const linked = new Set()

// links rewrites links to other files than pages.
export function links(md, docs) {
  md.core.ruler.push('files', ({ tokens, env }) => {
    for (const { children } of tokens)
      for (const token of children ?? [])
        if (token.type === 'link_open') token.attrSet('href', target(token.attrGet('href'), docs, env.relativePath))
  })
}

function target(href, docs, page) {
  if (/^([a-z]+:|#)/.test(href)) return href
  const [name, hash] = href.split('#')
  const file = path.join(docs, path.dirname(page), decodeURI(name))
  if (!fs.existsSync(file)) throw new Error(`docs/${page}: there is no ${name}`)
  const inside = path.relative(docs, file)
  if (inside.startsWith('..')) {
    const kind = fs.statSync(file).isDirectory() ? 'tree' : 'blob'
    return `${repository}/${kind}/main/${path.relative(path.dirname(docs), file)}`
  }
  if (name.endsWith('.md')) return href.replace(/README\.md/, 'index.md')
  linked.add(inside)
  return hash === undefined ? name : `${name}#${hash}`
}

// copyLinked puts files that pages link to beside them.
export function copyLinked(docs, site) {
  for (const file of linked) fs.cpSync(path.join(docs, file), path.join(site, file), { recursive: true })
}
