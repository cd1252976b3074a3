package hostlocal

import (
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is the ipam object.
type config struct {
	*ranges.Config
	store *lease.Store
}

// load reads the configuration without the addresses that the runtime asks for.
func load(r *plugin.Request) (*config, error) {
	own, err := ranges.Read(r)
	if err != nil {
		return nil, err
	}
	dir := dataDir(r.Config.Object("ipam"))
	if err := r.Config.Err(); err != nil {
		return nil, err
	}
	store, err := lease.NewStore(dir, r.Network, r.Results)
	if err != nil {
		return nil, plugin.ConfigError("set ipam.dataDir to an absolute path, such as "+lease.DefaultDir, "host-local: %w", err)
	}
	return &config{own, store}, nil
}

// dataDir returns the directory of all networks' leases.
func dataDir(ipam *conf.Object) string {
	dir := ""
	ipam.String("dataDir", &dir)
	if dir == "" {
		return lease.DefaultDir
	}
	return dir
}
