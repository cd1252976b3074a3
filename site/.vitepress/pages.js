// The menus, from what is in docs/: a section for each folder, a line for each page.
import fs from 'node:fs'
import path from 'node:path'

// Sections and pages that a reader wants first come first; what is not named here follows by its title.
const sections = [
  ['start', 'Start', ['first-container']],
  ['install', 'Install', ['packages', 'kubernetes', 'containerd', 'crio', 'podman', 'nerdctl', 'k3s', 'nomad', 'buildkit', 'rootless', 'ansible']],
  ['plugins', 'Plugins', []],
  ['recipes', 'Recipes', ['published-port', 'two-networks', 'vlans', 'lan-address', 'virtual-machine', 'flannel', 'dhcp', 'limits', 'isolation', 'sandboxes']],
  ['operate', 'Operate', ['cnictl', 'lint', 'troubleshooting', 'dropped', 'after-another-cni', 'agent', 'netfilter', 'fips']],
  ['moving', 'Moving', ['from-reference', 'from-docker', 'from-humanz']],
  ['project', 'Project', ['architecture', 'writing-a-plugin', 'security', 'reliability', 'conformance', 'cni-conformance', 'kernels', 'runtimes', 'benchmarks', 'versions', 'releases', 'packagers', 'dependencies']],
]

// Fragments that other pages include.
export const fragments = ['project/benchmarks/notes.md', 'project/benchmarks/many-notes.md']

// Pages of the project that the menu has beside its sections: those that somebody reads who decides.
const decide = ['benchmarks', 'security', 'releases']

export function sidebar(docs) {
  return sections.map(([folder, text, order]) => ({ text, items: pages(docs, folder, order) })).filter((section) => section.items.length > 0)
}

// menu has the sections that somebody new looks for.
export function menu(docs) {
  const all = sidebar(docs)
  const projects = all.at(-1).items.filter(({ link }) => decide.some((name) => link.replace(/\/$/, '') === `/project/${name}`))
  return [
    ...all.slice(0, -1).map(({ text, items }) => ({ text, link: items[0].link, activeMatch: `^${path.posix.dirname(items[0].link + 'x')}/` })),
    ...projects.map(({ text, link }) => ({ text, link, activeMatch: `^${link}` })).sort((a, b) => decide.indexOf(a.text.toLowerCase()) - decide.indexOf(b.text.toLowerCase())),
  ]
}

// version is what the programs call themselves, and whether that is out yet.
export function version(root) {
  const [, number] = fs.readFileSync(path.join(root, 'pkg/process/box/box.go'), 'utf8').match(/const Version = "(.+)"/)
  return fs.readFileSync(path.join(root, 'CHANGELOG.md'), 'utf8').includes(`## [${number}]`) ? number : `${number}, not released yet`
}

function pages(docs, folder, order) {
  const directory = path.join(docs, folder)
  if (!fs.existsSync(directory)) return []
  const rank = ({ name }) => name === 'index' ? -1 : order.includes(name) ? order.indexOf(name) : order.length
  return fs.readdirSync(directory, { withFileTypes: true })
    .map((entry) => entry.isDirectory() ? book(docs, folder, entry.name) : page(docs, folder, entry.name))
    .filter(Boolean)
    .sort((a, b) => rank(a) - rank(b) || a.text.localeCompare(b.text))
}

function page(docs, folder, file) {
  const name = file.replace(/\.md$/, '')
  // A folder's first page is README.md where a code host shows it. The pages of a folder that has none are below the page of its name.
  if (name === file || fragments.includes(`${folder}/${file}`) || (isFirst(name) && folder.includes('/'))) return undefined
  if (isFirst(name)) return { name: 'index', link: `/${folder}/`, text: 'Overview' }
  return { name, link: `/${folder}/${name}`, text: title(path.join(docs, folder, file)), ...below(docs, `${folder}/${name}`) }
}

// book is a folder with a first page: its others are below that.
function book(docs, folder, name) {
  const first = ['index.md', 'README.md'].map((file) => path.join(docs, folder, name, file)).find((file) => fs.existsSync(file))
  return first && { name, link: `/${folder}/${name}/`, text: title(first), ...below(docs, `${folder}/${name}`) }
}

// below has the pages of a folder inside of a section, without the word that each of their titles begins with.
function below(docs, folder) {
  const items = pages(docs, folder, []).map((item) => ({ ...item, text: item.text.replace(new RegExp(`^${path.basename(folder)}:? `, 'i'), '') }))
  return items.length > 0 ? { collapsed: true, items } : {}
}

const isFirst = (name) => name === 'index' || name === 'README'

function title(file) {
  const heading = fs.readFileSync(file, 'utf8').match(/^# (.+)$/m)
  if (!heading) throw new Error(`${file}: a page begins with its title: # Title`)
  return heading[1].replaceAll('`', '')
}
