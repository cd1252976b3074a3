package flannel

import (
	"cmp"

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
	return validate(r)
}

// Facts implements plugin.Described.
func (Plugin) Facts(o *conf.Object) plugin.Facts {
	path := subnetFile(o)
	return plugin.Facts{
		MakesInterface: true, AnyGateway: true,
		DelegateKey: "delegate", DelegateType: usualDelegate, IPAMType: usualIPAM, LeasesInFiles: true,
		Subnets: &plugin.SubnetFile{Path: path, Units: []string{"flanneld.service", "flannel.service"}, Read: func() (plugin.Subnets, error) {
			s, err := readSubnet(path)
			return plugin.Subnets{Own: s.own, MTU: *cmp.Or(s.mtu, new(int))}, err
		}},
		Dirs: []string{defaultDataDir},
	}
}

// ownKeys are those of the plugin's object.
func ownKeys() keys.Table {
	return keys.Table{
		{Name: "delegate", Type: keys.Object, Default: "`{}`",
			Doc: "The delegate's configuration, to be completed. `type` names a plugin that makes an interface. It must not have `name` and `ipam`."},
		{Name: "ipam", Type: keys.Object, Default: "`{}`",
			Doc: "The delegate's `ipam`, to be completed."},
		{Name: "subnetFile", Type: keys.String, Form: keys.Path, Default: "`/run/flannel/subnet.env`",
			Doc: "The daemon's file."},
		{Name: "dataDir", Type: keys.String, Form: keys.Path, Default: "`/var/lib/cni/flannel`",
			Doc: "Where the delegate's configuration is kept from ADD to DEL."},
	}
}
