package hostlocal

import (
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Keys implements plugin.Configured.
func (Plugin) Keys() keys.Set {
	own := append(ranges.Keys(), keys.Key{Name: "dataDir", Type: keys.String, Form: keys.Path, Default: "`/var/lib/cni/networks`",
		Doc: "Where the files are, in a directory for each network."})
	return keys.Set{Own: own, Runtime: ranges.RuntimeKeys(), Args: ranges.ArgsKeys()}
}

// Parse implements plugin.Configured.
func (Plugin) Parse(r *plugin.Request) error {
	c, err := load(r)
	if err != nil {
		return err
	}
	return c.ReadRequests(r)
}

// Facts implements plugin.Described.
func (Plugin) Facts(*conf.Object) plugin.Facts {
	return plugin.Facts{LeasesInFiles: true, Dirs: []string{lease.DefaultDir}}
}
