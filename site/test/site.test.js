// What the built site is for its readers, in a browser.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { barriers, launch, patience, pictures, root } from './browser.js'
import { serve } from './server.js'

const site = path.join(root, 'bin/site')

const pages = fs.readdirSync(site, { recursive: true }).map(String).filter((name) => name.endsWith('.html') && name !== '404.html')
// Pages of each kind: home, guides, lists, a plugin, a recipe, commands, reports, and the one that is not there.
const kinds = ['index.html', 'start/first-container.html', 'install/podman.html', 'moving/from-reference.html', 'plugins/index.html', 'plugins/portmap.html', 'recipes/published-port.html',
  'operate/cnictl/index.html', 'operate/cnictl/show.html', 'project/benchmarks/index.html', 'project/conformance.html', 'project/conformance/vrf.html', '404.html']

let server, browser
before(async () => {
  server = await serve(site)
  browser = await launch()
})
after(async () => {
  await browser?.close()
  server?.close()
})

// open shows a page to a reader of its own, and notes what the page does that it must not.
async function open(name, { width = 1280, scheme = 'light' } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme })
  context.setDefaultTimeout(patience)
  const page = await context.newPage()
  page.wrong = []
  page.on('request', (request) => { if (!request.url().startsWith(server.address + '/') && !request.url().startsWith('data:')) page.wrong.push(`asks ${request.url()}`) })
  page.on('response', (response) => { if (response.status() >= 400) page.wrong.push(`${response.status()} for ${response.url()}`) })
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) page.wrong.push(message.text()) })
  page.on('pageerror', (error) => page.wrong.push(String(error)))
  await go(page, name)
  return page
}

async function go(page, name) {
  await page.goto(`${server.address}/${name}`)
  // The page is alive when Vue has it.
  await page.waitForFunction(() => document.querySelector('#app')?.__vue_app__)
}

test('every page fits a phone, asks nobody else, and leads only to what is there', async () => {
  const ids = new Map()
  const links = []
  const page = await open('index.html', { width: 390 })
  for (const name of pages) {
    await go(page, name)
    const seen = await page.evaluate(() => ({
      address: location.pathname,
      links: [...document.querySelectorAll('main a[href], nav a[href], aside a[href]')].map((a) => a.href),
      ids: [...document.querySelectorAll('[id]')].map((element) => element.id),
      tooWide: document.documentElement.scrollWidth - innerWidth,
      pictures: [...document.images].filter((image) => !image.hasAttribute('alt')).map((image) => image.src),
      titles: document.querySelectorAll('main h1').length,
    }))
    assert.ok(seen.tooWide <= 0, `${name} is ${seen.tooWide} pixels wider than a phone`)
    assert.deepEqual(seen.pictures, [], `pictures of ${name} without a text`)
    assert.equal(seen.titles, 1, `titles of ${name}`)
    assert.deepEqual(page.wrong, [], name)
    ids.set(seen.address, new Set(seen.ids))
    for (const href of seen.links) links.push([name, href])
  }
  await page.context().close()

  const dead = new Set()
  for (const [name, href] of links) {
    const { origin, pathname, hash } = new URL(href)
    if (origin !== server.address) continue
    const target = pathname.endsWith('/') ? pathname + 'index.html' : path.extname(pathname) ? pathname : pathname + '.html'
    const found = ids.get(target) ?? (fs.existsSync(path.join(site, decodeURIComponent(target))) && new Set())
    if (!found || (hash && !found.has(decodeURIComponent(hash.slice(1))))) dead.add(`${name}: ${pathname}${hash}`)
  }
  assert.deepEqual([...dead], [])
})

for (const [words, found] of [['portmap', 'plugins/portmap.html'], ['apt install', 'install/packages.html'], ['no addresses left', 'operate/troubleshooting.html#no-addresses-are-left']])
  test(`search finds "${words}"`, async () => {
    const page = await open('index.html')
    await page.keyboard.press('Control+k')
    await page.locator('#localsearch-input').fill(words)
    await page.locator('#localsearch-list .result mark').first().waitFor()
    await page.locator(`#localsearch-list a[href*="${found}"]`).first().click()
    await page.waitForURL((url) => url.href.includes(found))
    assert.deepEqual(page.wrong, [])
    await page.context().close()
  })

test('the menu has what somebody looks for who decides, and the list of pages shows the version', async () => {
  const page = await open('start/first-container.html')
  const menu = await page.locator('.VPNavBarMenu a').allInnerTexts()
  for (const name of ['Install', 'Plugins', 'Recipes', 'Operate', 'Moving', 'Benchmarks', 'Security', 'Releases']) assert.ok(menu.includes(name), `${name} is not in ${menu}`)
  const bar = await page.evaluate(() => {
    const [menu, search] = ['.VPNavBarMenu', '.VPNavBarSearch'].map((name) => document.querySelector(name).getBoundingClientRect())
    return { room: menu.left - search.left, wide: document.documentElement.scrollWidth - innerWidth }
  })
  assert.ok(bar.room > 0 && bar.wide <= 0, JSON.stringify(bar))
  assert.match(await page.locator('.VPSidebar .version').innerText(), /^Version \d+\.\d+\.\d+/)
  await page.locator('.VPNavBarMenu a', { hasText: 'Benchmarks' }).click()
  await page.locator('main h1', { hasText: 'Benchmarks' }).waitFor()
  await page.context().close()
})

test('the list of pages scrolls to the page that is read', async () => {
  const page = await open('project/releases.html')
  const seen = () => page.waitForFunction(() => {
    const [list, line] = ['.VPSidebar', '.VPSidebar .is-active.is-link > .item'].map((name) => document.querySelector(name)?.getBoundingClientRect())
    return line && line.top >= list.top && line.bottom <= list.bottom
  })
  await seen()
  await page.locator('.VPNavBarMenu a', { hasText: 'Start' }).click()
  await page.locator('main h1', { hasText: 'Your first container' }).waitFor()
  await seen()
  assert.deepEqual(page.wrong, [])
  await page.context().close()
})

test('a long table is filtered by words and by what fails; without scripts it is whole', async () => {
  const page = await open('project/conformance/bridge.html')
  const shown = () => page.locator('main tbody tr:visible').count()
  const all = await shown()
  assert.ok(all > 100, `${all} rows`)
  await page.getByLabel('only rows with FAIL').check()
  const failing = await shown()
  assert.ok(failing > 0 && failing < all, `${failing} of ${all} rows fail`)
  assert.equal(await page.locator('main tbody tr:visible', { hasNotText: 'FAIL' }).count(), 0)
  await page.getByLabel('Show only rows with these words').fill('VLAN trunk')
  const some = await shown()
  assert.ok(some > 0 && some < failing, `${some} rows have the words`)
  assert.equal(await page.locator('main .filter .count').innerText(), `${some} of ${all} rows`)
  await page.locator('.VPSidebar a', { hasText: 'portmap' }).last().click()
  await page.locator('main h1', { hasText: 'portmap' }).waitFor()
  await page.locator('main .filter').waitFor()
  assert.deepEqual(page.wrong, [])
  await page.context().close()

  const plain = await browser.newContext({ javaScriptEnabled: false })
  const still = await plain.newPage()
  await still.goto(`${server.address}/project/conformance/bridge.html`, { timeout: patience })
  assert.equal(await still.locator('main tbody tr').count(), all)
  assert.equal(await still.locator('main .filter').count(), 0)
  await plain.close()
})

test('a page that is not there says so, and leads home', async () => {
  const page = await open('no/such/page')
  assert.deepEqual(page.wrong.filter((wrong) => !wrong.includes('404')), [])
  await page.locator('.NotFound a').click()
  await page.locator('main h1').waitFor()
  assert.equal(new URL(page.url()).pathname, '/')
  await page.context().close()
})

test('dark and light: what the reader chooses stays', async () => {
  const page = await open('index.html')
  const dark = () => page.evaluate(() => document.documentElement.classList.contains('dark'))
  assert.equal(await dark(), false)
  await page.locator('.VPNavBar .VPSwitchAppearance').first().click()
  assert.equal(await dark(), true)
  await go(page, 'plugins/bridge.html')
  assert.equal(await dark(), true)
  await page.context().close()
})

test('the first page says in tabs how to install', async () => {
  const page = await open('index.html')
  const shown = () => page.locator('main .vp-code-group .blocks > div:visible').allInnerTexts()
  for (const [name, command] of [['Debian, Ubuntu', 'apt install'], ['Kubernetes', 'kubectl apply'], ['Archive', 'tar -C /opt/cni/bin']]) {
    await page.locator('main .vp-code-group label', { hasText: name }).click()
    const blocks = await shown()
    assert.equal(blocks.length, 1)
    assert.ok(blocks[0].includes(command), blocks[0])
  }
  await page.context().close()
})

test('code is copied by its button', async () => {
  const page = await open('index.html')
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
  await page.locator('main div[class*=language-]').first().hover()
  await page.locator('main button.copy').first().click()
  await page.locator('main button.copy.copied').waitFor()
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^apt install/)
  await page.context().close()
})

for (const [scheme, width] of [['light', 1280], ['dark', 390]])
  test(`no barrier that axe knows, ${scheme}, ${width} pixels wide; pictures to look at`, async () => {
    fs.mkdirSync(pictures, { recursive: true })
    const page = await open('index.html', { width, scheme })
    for (const name of kinds) {
      await go(page, name)
      await page.screenshot({ path: path.join(pictures, `${name.replaceAll('/', '-').replace('.html', '')}-${width}.png`) })
      assert.deepEqual(await barriers(page), [], name)
    }
    await page.keyboard.press('Control+k')
    await page.locator('#localsearch-input').fill('no addresses left')
    await page.locator('#localsearch-list .result mark').first().waitFor()
    await page.screenshot({ path: path.join(pictures, `search-${width}.png`) })
    assert.deepEqual(await barriers(page), [], 'search')
    await page.context().close()
  })
