// What people find by the search: it is asked as the box of the site asks it, with the index that is on the site.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import { fileURLToPath, pathToFileURL } from 'node:url'
import MiniSearch from 'minisearch'
import { index, keywords, query, sectionOf } from '../.vitepress/search.js'

const chunks = fileURLToPath(new URL('../../bin/site/assets/chunks', import.meta.url))
const file = fs.readdirSync(chunks).filter((name) => name.includes('localSearchIndex'))
const json = (await import(pathToFileURL(path.join(chunks, file[0])))).default
const sections = MiniSearch.loadJSON(json, index)

const queries = fs.readFileSync(new URL('queries.txt', import.meta.url), 'utf8').split('\n')
  .filter((line) => line && !line.startsWith('#')).map((line) => line.split('\t'))

test('what people type finds the right page among the first three, and mostly first', (t) => {
  const missed = []
  let first = 0
  for (const [words, pages] of queries) {
    const wanted = pages.split('|').map((page) => page.replace(/\.md$/, '').replace(/README$/, 'index'))
    const hits = sections.search(words, query).map(({ id }) => sectionOf(id))
    const place = hits.findIndex((hit) => wanted.includes(hit.split('#')[0])) + 1
    if (place === 1) first++
    t.diagnostic(`${String(place || '-').padStart(3)}  ${words}`)
    if (place < 1 || place > 3) missed.push(`"${words}" finds ${hits.slice(0, 3)}, and not ${wanted}`)
  }
  assert.deepEqual(missed, [])
  assert.ok(first >= 0.95 * queries.length, `${first} of ${queries.length} are first`)
})

test('links to other pages are no hits for the words of those', () => {
  assert.deepEqual(Object.values(JSON.parse(json).documentIds).filter((id) => /#(where-to-go-next|see-also)/.test(id)), [])
})

test('keywords are of sections that are there', () => {
  const there = new Set(Object.values(JSON.parse(json).documentIds).map(sectionOf))
  assert.deepEqual([...keywords.keys()].filter((section) => !there.has(section)), [])
})

test('the index is small enough to load on a phone', () => {
  assert.equal(file.length, 1)
  const { size } = fs.statSync(path.join(chunks, file[0]))
  assert.ok(size < 1_000_000, `${size} bytes`)
})
