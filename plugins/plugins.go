// Package plugins is the table of all plugins. A new one is a folder and a row.
package plugins

import (
	"github.com/cnibox/cnibox/pkg/plugin"
)

// All are the plugins of cnibox.
var All = plugin.Table{}
