// The manual's site, made from docs/. What is here is how it is made; what it says is in docs/.
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'
import { copyLinked, links } from './links.js'
import { fragments, menu, sidebar, version } from './pages.js'
import { anchor, braces, pictures, tables, tabs } from './markdown.js'
import { search } from './search.js'

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url))
const docs = path('../../docs')

// Pages are not beside node_modules, where Vite looks for what they need.
const vueOfPages = {
  name: 'vue-of-pages',
  enforce: 'pre',
  resolveId(id, importer) {
    return importer?.startsWith(docs) && /^vue($|\/)/.test(id) ? this.resolve(id, path('config.js'), { skipSelf: true }) : undefined
  },
}

export default defineConfig({
  title: 'cnibox',
  description: 'Every CNI plugin a Linux node needs, in one small static binary.',
  lang: 'en',
  base: process.env.SITE_BASE ?? '/',
  srcDir: docs,
  srcExclude: fragments,
  outDir: path('../../bin/site'),
  cacheDir: path('../../bin/site-cache'),
  // A folder's first page is README.md where a code host shows it.
  rewrites: (page) => page.replace(/README\.md$/, 'index.md'),
  head: [['link', { rel: 'icon', type: 'image/svg+xml', href: (process.env.SITE_BASE ?? '/') + 'icon.svg' }]],
  markdown: {
    anchor: { slugify: anchor },
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    config: (md) => md.use(links, docs).use(tabs).use(tables).use(pictures).use(braces),
  },
  transformPageData(page) {
    // The home page is plain Markdown too: how it looks is in the theme.
    if (page.relativePath === 'index.md') Object.assign(page.frontmatter, { pageClass: 'home', sidebar: false, aside: false, prev: false, next: false })
    // One wide table, and no headings that a list beside it would have.
    if (page.relativePath.startsWith('project/conformance/')) Object.assign(page.frontmatter, { pageClass: 'rows', aside: false })
  },
  buildEnd: (site) => copyLinked(docs, site.outDir),
  vite: {
    publicDir: path('public'),
    plugins: [vueOfPages],
    // Pictures stay files, which a browser loads when it gets to them.
    build: { assetsInlineLimit: 0, chunkSizeWarningLimit: 2000 },
  },
  themeConfig: {
    logo: '/icon.svg',
    nav: menu(docs),
    sidebar: sidebar(docs),
    version: version(path('../..')),
    outline: [2, 3],
    externalLinkIcon: true,
    docFooter: { prev: 'Before', next: 'Next' },
    notFound: { title: 'There is no such page', quote: 'It may have another name by now. The search finds it.', linkText: 'To the first page', linkLabel: 'To the first page' },
    search,
  },
})
