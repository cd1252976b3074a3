// Package page draws a node as a page for a browser: one file, without anything from elsewhere.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"

	"github.com/cnibox/cnibox/pkg/link"
)

// The parts of the page. They are put into one file.
var (
	//go:embed page.html
	document string
	//go:embed page.css
	styles string
	//go:embed page.js
	script string
)

// bridged is the kind of the segments that are bridges.
const bridged = link.KindBridge

// icons are drawn for kinds of things, on a field of 24 by 24.
var icons = map[string]template.HTML{
	"outside": `<circle cx="12" cy="12" r="9"/><path d="M3 12h18M12 3c3 3 3 15 0 18M12 3c-3 3-3 15 0 18"/>`,
	"uplink":  `<rect x="3" y="4" width="18" height="12" rx="2"/><path d="M12 16v4M8 20h8M7 8v4M11 8v4M15 8v4"/>`,
	bridged:   `<path d="M3 17h18M5 17v-3a7 7 0 0 1 14 0v3M9 17v-5M15 17v-5"/>`,
	"routed":  `<circle cx="6" cy="18" r="2.5"/><circle cx="18" cy="6" r="2.5"/><path d="M8.5 18H14a4 4 0 0 0 4-4V8.5"/>`,
	"none":    `<rect x="4" y="4" width="16" height="16" rx="3" stroke-dasharray="3 3"/>`,
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"styles": func() template.CSS { return template.CSS(styles) },
	"script": func() template.JS { return template.JS(script) },
	"icon": func(kind string) template.HTML {
		return `<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">` + icons[kind] + `</svg>`
	},
	"policy": policy,
}).Parse(document))

// policy is what the browser may do with the page: fetch nothing, and run no script but the page's own, whatever names containers have.
func policy() string {
	sum := sha256.Sum256([]byte(script))
	return fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'; img-src data:; base-uri 'none'; form-action 'none'",
		base64.StdEncoding.EncodeToString(sum[:]))
}

// Write writes the page.
func (p *Page) Write(w io.Writer) error { return page.Execute(w, p) }
