// What the tests in a browser share.
import fs from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { chromium } from 'playwright-core'

export const root = fileURLToPath(new URL('../..', import.meta.url))
export const pictures = path.join(root, 'bin/site-pictures')
const axe = fs.readFileSync(fileURLToPath(import.meta.resolve('axe-core/axe.min.js')), 'utf8')

// How long anything may take, in milliseconds. It is long: a busy machine must not decide a test.
export const patience = 180_000

export const launch = () => chromium.launch({
  timeout: patience,
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
})

// barriers returns what axe finds on a page that keeps readers out.
export async function barriers(page) {
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => window.axe.run({ resultTypes: ['violations'] }))
  return violations.filter(({ impact }) => impact === 'serious' || impact === 'critical').map(({ id, nodes }) => [id, nodes.length, nodes[0].html, nodes[0].failureSummary])
}
