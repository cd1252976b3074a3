import '@fontsource-variable/atkinson-hyperlegible-next/wght.css'
import '@fontsource-variable/atkinson-hyperlegible-mono/wght.css'
import { onContentUpdated, useData } from 'vitepress'
import Theme from 'vitepress/theme-without-fonts'
import { h, nextTick, onMounted } from 'vue'
import { addFilters } from './filter.js'
import { mendRoles } from './roles.js'
import './style.css'

// Version says which version the manual is of, above the list of pages.
const Version = () => {
  const { site, theme } = useData()
  return h('p', { class: 'version' }, ['Version ', h('a', { href: site.value.base + 'project/releases.html' }, theme.value.version)])
}

// First says it beside the name on the first page, which has no list.
const First = () => {
  const { page, theme } = useData()
  return page.value.relativePath === 'index.md' ? h('span', { class: 'version' }, theme.value.version.split(',')[0]) : undefined
}

// showPlace scrolls the list of pages to the page that is read, when that is out of sight.
function showPlace() {
  const [list, page] = [document.querySelector('.VPSidebar'), document.querySelector('.VPSidebar .is-active.is-link > .item')]
  if (!list || !page) return
  const [frame, line] = [list.getBoundingClientRect(), page.getBoundingClientRect()]
  if (line.top < frame.top + 64 || line.bottom > frame.bottom - 64) list.scrollTop += line.top - frame.top - frame.height / 3
}

export default {
  extends: Theme,
  Layout: {
    setup() {
      onMounted(mendRoles)
      onContentUpdated(() => {
        addFilters()
        nextTick(() => requestAnimationFrame(showPlace)) // the list marks the page when it has been drawn
      })
      return () => h(Theme.Layout, null, { 'sidebar-nav-before': () => h(Version), 'nav-bar-title-after': () => h(First) })
    },
  },
}
