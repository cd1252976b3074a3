package settings

import (
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/notes"
)

// Keys implements plugin.Configured.
func (Configuration) Keys() keys.Set {
	own := append(ranges.Keys(),
		keys.Key{Name: "etcd", Type: keys.Object, Required: true, Keys: settingsKeys(), Doc: "Where the pool is."},
		keys.Key{Name: "dataDir", Type: keys.String, Form: keys.Path, Default: "`" + notes.DefaultDir + "`",
			Doc: "Where this host notes what it holds, in a directory for each network."})
	return keys.Set{Own: own, Runtime: ranges.RuntimeKeys(), Args: ranges.ArgsKeys()}
}

// Facts implements plugin.Described.
func (Configuration) Facts(*conf.Object) plugin.Facts {
	return plugin.Facts{Dirs: []string{notes.DefaultDir}}
}

// settingsKeys are those of the object "etcd".
func settingsKeys() keys.Table {
	return keys.Table{
		{Name: "endpoints", Type: keys.Strings, Required: true,
			Doc: "The members of the cluster, each as `https://ADDRESS:PORT` or each as `http://ADDRESS:PORT`."},
		{Name: "prefix", Type: keys.String, Form: keys.Path, Default: "`" + defaultPrefix + "`",
			Doc: "The beginning of the names of all keys in etcd. Hosts that share a network have the same."},
		{Name: "host", Type: keys.String, Default: "the host's name",
			Doc: "The name of this host in etcd. No other host may have it."},
		{Name: "caFile", Type: keys.String, Form: keys.Path, Default: "the system's authorities",
			Doc: "The certificates of the authority that has signed the members'."},
		{Name: "certFile", Type: keys.String, Form: keys.Path, Default: "none", Doc: "This host's certificate, with `keyFile`."},
		{Name: "keyFile", Type: keys.String, Form: keys.Path, Default: "none", Doc: "The key of the certificate in `certFile`."},
		{Name: "username", Type: keys.String, Default: "none", Doc: "The user of etcd that this host is, with `passwordFile`."},
		{Name: "passwordFile", Type: keys.String, Form: keys.Path, Default: "none", Doc: "A file with that user's password."},
		{Name: "timeoutSeconds", Type: keys.Int, Range: &keys.Range{Min: leastTimeout, Max: mostTimeout}, Default: "5",
			Doc: "For how long a call tries to reach etcd."},
		{Name: "graceSeconds", Type: keys.Int, Range: &keys.Range{Min: leastGrace, Max: mostGrace}, Default: "604800, a week",
			Doc: "After how long without a word from a host its addresses are free again. It has to be longer than any time for which a host can run on without reaching etcd."},
	}
}
