// Package docs has what programs read of the manual.
package docs

import _ "embed" // the page

// Troubleshooting is a page whose tables say what errors mean.
//
//go:embed operate/troubleshooting.md
var Troubleshooting string
