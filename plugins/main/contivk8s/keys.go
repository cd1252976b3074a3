package contivk8s

import (
	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

// Keys implements plugin.Configured.
func (Plugin) Keys() keys.Set {
	return keys.Set{Own: ownKeys()}
}

// Parse implements plugin.Configured.
func (Plugin) Parse(r *plugin.Request) error {
	_, err := parse(r.Config)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(*conf.Object) plugin.Facts {
	return plugin.Facts{MakesInterface: true, Dirs: []string{contiv.Dir}}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return keys.Table{
		{Name: "socket", Type: keys.String, Form: keys.Path, Since: keys.Ours, Default: "`/run/contiv/contiv-cni.sock`",
			Doc: "Where the daemon listens. At most 107 bytes."},
		{Name: "timeout", Type: keys.Int, Range: &keys.Range{Min: 1, Max: mostTimeout}, Since: keys.Ours, Default: "`60`",
			Doc: "For how many seconds an ADD waits for the daemon. A DEL waits for as long, and 10 seconds at most."},
		attach.DNSKey("none", "DNS settings for the result."),
	}
}
