// A box above each long table that shows only the rows with some words. Without scripts there is no box, and the whole table.
const long = 30

export function addFilters() {
  for (const table of document.querySelectorAll('.vp-doc .table')) {
    const rows = [...table.querySelectorAll('tbody tr')]
    if (rows.length < long || table.previousElementSibling?.classList.contains('filter')) continue
    table.before(filterOf(table, rows))
  }
}

function filterOf(table, rows) {
  const texts = rows.map((row) => row.textContent.toLowerCase())
  const words = make('input', { type: 'search', placeholder: 'Filter rows', ariaLabel: 'Show only rows with these words', autocomplete: 'off', spellcheck: false })
  const count = make('span', { className: 'count' })
  count.setAttribute('aria-live', 'polite')
  const box = make('div', { className: 'filter' }, words)

  // Some tables are about what fails.
  const failing = rows.map((row) => [...row.cells].some((cell) => cell.textContent.trim() === 'FAIL'))
  const only = make('input', { type: 'checkbox' })
  if (failing.includes(true)) box.append(make('label', {}, only, 'only rows with FAIL'))
  box.append(count)

  const show = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean)
    let shown = 0
    rows.forEach((row, i) => {
      row.hidden = !wanted.every((word) => texts[i].includes(word)) || (only.checked && !failing[i])
      if (!row.hidden) shown++
    })
    count.textContent = shown === rows.length ? `${shown} rows` : `${shown} of ${rows.length} rows`
  }
  words.addEventListener('input', show)
  only.addEventListener('change', show)
  show()
  return box
}

const make = (name, properties, ...children) => {
  const element = Object.assign(document.createElement(name), properties)
  element.append(...children)
  return element
}
