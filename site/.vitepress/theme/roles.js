// mendRoles makes the search be what it is for who can't see it: a dialog with links. VitePress calls it a button, with options that have links in them,
// and their names leave out what is found.
export function mendRoles() {
  const mend = () => {
    const box = document.querySelector('.VPLocalSearchBox')
    if (!box) return
    if (box.getAttribute('role') !== 'dialog') { // to set it anew would be a change, too, and call this without end
      box.setAttribute('role', 'dialog')
      box.setAttribute('aria-modal', 'true')
    }
    for (const key of box.querySelectorAll('kbd[aria-label]:not([role])')) key.setAttribute('role', 'img') // only what has a role may have a name
    for (const [where, ...names] of [
      ['.VPLocalSearchBox', 'aria-expanded', 'aria-haspopup', 'aria-owns'],
      ['#localsearch-input', 'aria-activedescendant', 'aria-autocomplete', 'aria-controls'],
      ['#localsearch-list', 'role', 'aria-labelledby'],
      ['#localsearch-list > li', 'role', 'aria-selected'],
      ['#localsearch-list > li > a', 'aria-label'],
    ])
      for (const element of document.querySelectorAll(where)) for (const name of names) element.removeAttribute(name)
  }
  new MutationObserver(mend).observe(document.body, { childList: true, subtree: true, attributeFilter: ['role', 'aria-label', 'aria-owns', 'aria-selected', 'aria-activedescendant'] })
}
