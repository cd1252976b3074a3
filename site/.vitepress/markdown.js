// anchor names a heading as code hosts do, so that a link to it works there and here.
export function anchor(heading) {
  return heading.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, '').replaceAll(' ', '-')
}

// tabs makes tabs of blocks of code that stand one below the other between two comments, each below its name in bold: a code host shows them so.
export function tabs(md) {
  md.core.ruler.before('normalize', 'tabs', (state) => {
    state.src = state.src.replace(/<!-- tabs -->\n(.*?)<!-- end of tabs -->/gs, (_, blocks) => `::: code-group\n${blocks.replace(/\*\*(.+?)\*\*\n\n```(\w+)\n/g, '```$2 [$1]\n')}:::`)
  })
}

// tables puts each table into a box of its own that scrolls, so that no page is wider than a phone. Who has no mouse scrolls
// it with the arrow keys, which takes a tabindex. On a phone the cells of a table with sentences in it are below each other: each of more than
// two has the title of its column with it, and roles, since a table that is drawn otherwise is none for a screen reader.
export function tables(md) {
  md.core.ruler.push('tables', ({ tokens }) => {
    tokens.forEach((token, i) => { if (token.type === 'table_open') mark(tokens.slice(i, tokens.findIndex((end, j) => j > i && end.type === 'table_close'))) })
  })
  md.renderer.rules.table_open = (tokens, i) => `<div class="table${tokens[i].meta?.stacks ? ' stacks' : ''}" tabindex="0"><table role="table">\n`
  md.renderer.rules.table_close = () => '</table></div>\n'
}

const roles = { thead_open: 'rowgroup', tbody_open: 'rowgroup', tr_open: 'row', th_open: 'columnheader', td_open: 'cell' }

function mark(table) {
  const titles = table.filter((_, i) => table[i - 1]?.type === 'th_open').map(({ content }) => content.replaceAll('`', ''))
  const isWordy = table.some((token, i) => table[i - 1]?.type === 'td_open' && token.content.length > 50)
  table[0].meta = { stacks: isWordy && titles.length <= 4 }
  let column = 0
  for (const token of table) {
    if (roles[token.type]) token.attrSet('role', roles[token.type])
    if (token.type === 'tr_open') column = 0
    if (token.type !== 'td_open') continue
    if (titles[column] && titles.length > 2) token.attrSet('data-title', titles[column])
    column++
  }
}

// pictures puts each drawing into a box that scrolls on a phone, where its words would be too small to read.
export function pictures(md) {
  const image = md.renderer.rules.image
  md.renderer.rules.image = (tokens, i, ...rest) => {
    const html = image(tokens, i, ...rest)
    return tokens[i].attrGet('src').endsWith('.svg') ? `<span class="picture" tabindex="0">${html}</span>` : html
  }
}

// braces lets pages have {{ }} as text: Vue would take it for an expression.
export function braces(md) {
  for (const rule of ['text', 'code_inline']) {
    const render = md.renderer.rules[rule]
    md.renderer.rules[rule] = (...all) => render(...all).replaceAll('{{', '&#123;&#123;')
  }
}
