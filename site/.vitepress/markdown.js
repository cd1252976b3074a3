// anchor names a heading as code hosts do, so that a link to it works there and here.
export function anchor(heading) {
  return heading.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, '').replaceAll(' ', '-')
}

// tables puts each table into a box of its own that scrolls, so that no page is wider than a phone. Who has no mouse scrolls
// it with the arrow keys, which takes a tabindex.
export function tables(md) {
  md.renderer.rules.table_open = () => '<div class="table" tabindex="0"><table>\n'
  md.renderer.rules.table_close = () => '</table></div>\n'
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
