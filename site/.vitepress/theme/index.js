import '@fontsource-variable/atkinson-hyperlegible-next/wght.css'
import '@fontsource-variable/atkinson-hyperlegible-mono/wght.css'
import Theme from 'vitepress/theme-without-fonts'
import './style.css'

export default Theme
