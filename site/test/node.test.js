// The page that cnictl show --html draws of a node, in a browser.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { barriers, launch, patience, pictures, root } from './browser.js'

const cnictl = path.join(process.env.CNIBOX_BIN_DIR ?? path.join(root, 'bin'), 'cnictl')

let browser, html
before(async () => {
  html = execFileSync('unshare', ['-mn', 'sh', path.join(root, 'site/test/node.sh'), cnictl], { encoding: 'utf8', timeout: patience, stdio: ['ignore', 'pipe', 'inherit'] })
  browser = await launch()
})
after(() => browser?.close())

// crossed returns what lines of ports run through, and how many lines there are.
function crossed() {
  const lines = [...document.querySelectorAll('.wires path')].filter((line) => line.getTotalLength() > 0 && line.checkVisibility())
  const around = document.getElementById('map').getBoundingClientRect()
  const things = [...document.querySelectorAll('.map .box, .map .cell, .map .head > *, .map .pool')].map((thing) => [thing.textContent.trim().split('\n')[0], thing.getBoundingClientRect()])
  const found = new Set()
  for (const line of lines)
    for (let at = 0; at < line.getTotalLength(); at++) {
      const { x, y } = line.getPointAtLength(at)
      const [left, top] = [x + around.left, y + around.top]
      for (const [name, box] of things) if (left > box.left + 1 && left < box.right - 1 && top > box.top + 1 && top < box.bottom - 1) found.add(name)
    }
  return { lines: lines.length, found: [...found] }
}

for (const [width, scheme, lines] of [[1280, 'light', 8], [1280, 'dark', 8], [920, 'light', 8], [390, 'light', 0], [390, 'dark', 0]])
  test(`the lines of ports cross nothing, ${scheme}, ${width} pixels wide`, async () => {
    const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme })
    context.setDefaultTimeout(patience)
    const page = await context.newPage()
    const wrong = []
    page.on('pageerror', (error) => wrong.push(String(error)))
    await page.setContent(html)
    assert.deepEqual(await page.evaluate(crossed), { lines, found: [] })
    await page.mouse.wheel(0, 300) // ports stay in sight, containers move
    await page.waitForFunction(() => scrollY > 0)
    assert.deepEqual((await page.evaluate(crossed)).found, [])
    await page.evaluate(() => scrollTo(0, 0))
    await page.locator('.door').first().hover()
    await page.locator('.cell.lit').waitFor()
    assert.deepEqual((await page.evaluate(crossed)).found, [])
    await page.mouse.move(0, 0)
    fs.mkdirSync(pictures, { recursive: true })
    await page.screenshot({ path: path.join(pictures, `node-${width}-${scheme}.png`), fullPage: true })
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the page is too wide')
    assert.deepEqual(await barriers(page), [])
    assert.deepEqual(wrong, [])
    await context.close()
  })
