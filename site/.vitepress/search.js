// The search of the site: what is in its index, and what counts how much.
import fs from 'node:fs'

// What people call things that the manual calls otherwise: words by section.
export const keywords = new Map(fs.readFileSync(new URL('keywords.txt', import.meta.url), 'utf8').split('\n')
  .filter((line) => line && !line.startsWith('#')).map((line) => line.split('\t')))

// sectionOf says which section has an address of the index, as keywords.txt does: a page below docs/ without .md, and a heading.
export function sectionOf(id) {
  return id.replace(process.env.SITE_BASE ?? '/', '').replace(/(^|\/)(?=#)/, '$1index').replace('.html', '')
}

// How the index is made. The reader's browser gets the functions as text: they use nothing but what they are given, but for the first, which
// it never calls.
export const index = {
  extractField: (section, field) => field === 'keywords' ? keywords.get(sectionOf(section.id)) : section[field],
  fields: ['title', 'titles', 'text', 'keywords'],
  storeFields: ['title', 'titles'],
  // Words that are in every question, and say nothing.
  processTerm: (term) => {
    const word = term.toLowerCase()
    return ['a', 'an', 'and', 'are', 'as', 'at', 'be', 'by', 'can', 'do', 'does', 'for', 'from', 'how', 'i', 'in', 'is', 'it', 'my', 'of', 'on', 'or', 'that', 'the', 'to', 'what', 'when', 'why', 'with'].includes(word) ? null : word
  },
}

// How it is asked. A section that has more of the words comes first; one that has them in its title counts more than one in whose text they are.
export const query = {
  combineWith: 'OR',
  fuzzy: (term) => term.length > 5 ? 0.2 : false,
  prefix: (term) => term.length > 2,
  boost: { title: 4, keywords: 4, titles: 1.5, text: 1 },
  weights: { fuzzy: 0.2, prefix: 0.6 },
  bm25: { k: 1.2, b: 0.4, d: 0.5 },
  // A page's beginning says what it is about. Reports about the project are for few.
  boostDocument: (id, term, section) => (section.titles.length === 0 ? 1.5 : 1) * (id.includes('project/') ? 0.7 : 1),
}

export const search = {
  provider: 'local',
  options: {
    // Without the pages that have a row for each promise: there are thousands, and they would be all that is found. And without the links
    // at the end of a page, which have the words of other pages.
    _render: (text, env, md) => env.relativePath.startsWith('project/conformance/') ? '' : md.render(text.replace(/^## (Where to go next|See also)\n[^]*/m, ''), env),
    miniSearch: { options: index, searchOptions: query },
  },
}
