// The menus, from what is in docs/: a section for each folder, a line for each page.
import fs from 'node:fs'
import path from 'node:path'

// Sections and pages that a reader wants first come first; what is not named here follows by its title.
const sections = [
  ['start', 'Start', ['first-container']],
  ['install', 'Install', ['packages', 'kubernetes', 'containerd', 'crio', 'podman', 'nerdctl', 'k3s', 'nomad', 'buildkit']],
  ['plugins', 'Plugins', []],
  ['recipes', 'Recipes', ['published-port', 'two-networks', 'vlans', 'lan-address', 'virtual-machine', 'flannel', 'dhcp', 'limits', 'isolation']],
  ['operate', 'Operate', ['cnictl', 'lint', 'troubleshooting', 'agent', 'netfilter']],
  ['moving', 'Moving', ['from-reference', 'from-humanz']],
  ['project', 'Project', ['architecture', 'writing-a-plugin', 'security', 'reliability', 'conformance', 'cni-conformance', 'kernels', 'runtimes', 'benchmarks', 'versions', 'releases', 'dependencies']],
]

export function sidebar(docs) {
  return sections.map(([folder, text, order]) => ({
    text,
    items: pages(docs, folder, order).map(({ name, title, link }) => ({ text: name === 'index' ? 'Overview' : title, link })),
  })).filter((section) => section.items.length > 0)
}

// menu has the sections that somebody new looks for.
export function menu(docs) {
  return sidebar(docs).slice(0, 5).map(({ text, items }) => ({ text, link: items[0].link, activeMatch: `^${path.dirname(items[0].link)}/` }))
}

function pages(docs, folder, order) {
  if (!fs.existsSync(path.join(docs, folder))) return []
  const rank = (page) => page.name === 'index' ? -1 : order.includes(page.name) ? order.indexOf(page.name) : order.length
  return fs.readdirSync(path.join(docs, folder), { withFileTypes: true })
    .map((entry) => page(docs, folder, entry))
    .filter(Boolean)
    .sort((a, b) => rank(a) - rank(b) || a.title.localeCompare(b.title))
}

// page is a file, or the README.md of a folder.
function page(docs, folder, entry) {
  let [file, name, link] = [entry.name, entry.name.replace(/\.md$/, ''), `/${folder}/${entry.name.replace(/\.md$/, '')}`]
  if (name === 'README' || name === 'index') [name, link] = ['index', `/${folder}/`]
  if (entry.isDirectory()) [file, link] = [path.join(entry.name, 'README.md'), `/${folder}/${entry.name}/`]
  const full = path.join(docs, folder, file)
  if (!file.endsWith('.md') || !fs.existsSync(full)) return undefined
  return { name, link, title: title(full) }
}

function title(file) {
  const heading = fs.readFileSync(file, 'utf8').match(/^# (.+)$/m)
  if (!heading) throw new Error(`${file}: a page begins with its title: # Title`)
  return heading[1].replaceAll('`', '')
}
