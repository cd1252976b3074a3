package chain

import (
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Keys implements plugin.Configured.
func (Plugin) Keys() keys.Set {
	return keys.Set{Own: ownKeys()}
}

// Parse implements plugin.Configured.
func (Plugin) Parse(r *plugin.Request) error {
	_, err := readSteps(r.Config)
	return err
}

// Facts implements plugin.Described.
func (Plugin) Facts(*conf.Object) plugin.Facts {
	return plugin.Facts{PluginsKey: "plugins"}
}

// ownKeys are those of the plugin's object. What "capabilities" must have depends on the plugins.
func ownKeys() keys.Table {
	return keys.Table{
		{Name: "plugins", Type: keys.Objects, Since: keys.Ours, Required: true,
			Doc: "The plugins, each written as in a conflist: a `type`, which may be [another name](../project/architecture.md#names) such as `cnv-bridge`, and its keys. At least one, and none of them a `chain`."},
	}
}
