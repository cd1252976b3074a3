// Package known is the table of all plugins that cnictl knows: those of cnibox, and etcd, which is a program of its own.
package known

import (
	"slices"

	"github.com/cnibox/cnibox/plugins"
	"github.com/cnibox/cnibox/plugins/ipam/etcd"
)

// Plugins are all of them.
var Plugins = append(slices.Clone(plugins.All), etcd.Row)
