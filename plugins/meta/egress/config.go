package egress

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is what the egress plugin reads of a configuration; docs/plugins/egress.md explains each key.
type config struct {
	lists    reach.Lists // of the network and of the container
	internal bool
}

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(o *conf.Object) (*config, error) {
	c := &config{}
	backend := ""
	o.String("backend", &backend)
	o.Bool("internal", &c.internal)
	if c.internal && o.Has("allow") {
		o.Fail("allow", "to be left out with internal, which says what is open", "both")
	}
	var name string
	c.lists = readLists(o, &name).And(readLists(o.Object("runtimeConfig").Object("egress"), &name))
	switch backend {
	case "", netfilter.NFTables, netfilter.IPTables:
	default:
		o.Fail("backend", "nftables", fmt.Sprintf("%q", backend))
	}
	switch err := o.Err(); {
	case err != nil:
		return nil, err
	case name != "":
		return nil, plugin.ConfigError("names need the resolver of `cnictl agent`, which is not there yet: list the addresses", "%s is a name", name)
	case backend == netfilter.IPTables:
		return nil, plugin.CodeErrorf(types.ErrPluginNotAvailable, "leave the key out",
			`backend is "iptables", which can't do what the lists need: rules of iptables see no ARP, and another program's rule before them lets pass what it likes`)
	}
	return c, nil
}

// readLists reads the lists of an object. name is set to the first entry with a name.
func readLists(o *conf.Object, name *string) reach.Lists {
	l := reach.Lists{Closed: o.Has("allow")}
	l.Allow, l.Deny = readEntries(o, "allow", name), readEntries(o, "deny", name)
	return l
}

func readEntries(o *conf.Object, key string, name *string) (list []reach.Entry) {
	if o.IsNull(key) { // as programs in Go write an empty list, which closes everything
		o.Fail(key, "a list, or no such key", "null")
	}
	var texts []string
	o.Strings(key, &texts)
	for i, text := range texts {
		e, err := reach.Parse(text)
		switch {
		case err != nil:
			o.Fail(fmt.Sprintf("%s[%d]", key, i), "an address or a prefix, such as 10.20.0.0/16, 192.0.2.7:443 or [2001:db8::53]:53/udp", fmt.Sprintf("%q: %v", text, err))
		case e.Name != "" && *name == "":
			*name = fmt.Sprintf("%s[%d]: %q", o.Path(key), i, text)
		}
		list = append(list, e)
	}
	return list
}
