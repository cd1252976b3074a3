package egress

import (
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is what the egress plugin reads of a configuration; docs/plugins/egress.md explains each key.
type config struct {
	lists    reach.Lists   // what is open by all of the network's and the container's
	texts    []names.Lists // those of each
	hasNames bool          // any of them has
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
	for _, part := range []*conf.Object{o, o.Object("runtimeConfig").Object("egress")} {
		lists := readLists(part)
		if part.Has("allow") || part.Has("deny") {
			c.texts = append(c.texts, names.Lists{Closed: lists.Closed, Allow: textsOf(lists.Allow), Deny: textsOf(lists.Deny)})
		}
		c.lists, c.hasNames = c.lists.And(lists), c.hasNames || lists.HasNames()
	}
	switch backend {
	case "", netfilter.NFTables, netfilter.IPTables:
	default:
		o.Fail("backend", "nftables", fmt.Sprintf("%q", backend))
	}
	switch err := o.Err(); {
	case err != nil:
		return nil, err
	case !c.lists.Closed && c.hasNames && c.internal:
		return nil, plugin.ConfigError("leave the names out: nothing outside is open", `"deny" has a name, and with "internal" no name leads anywhere`)
	case !c.lists.Closed && c.hasNames:
		return nil, plugin.ConfigError(`list the addresses, or give "allow", so that all is closed that no name on it opens`,
			`"deny" has a name, but what that leads to stays open: there is no "allow"`)
	case backend == netfilter.IPTables:
		return nil, plugin.CodeErrorf(types.ErrPluginNotAvailable, "leave the key out",
			`backend is "iptables", which can't do what the lists need: rules of iptables see no ARP, and another program's rule before them lets pass what it likes`)
	}
	return c, nil
}

// readLists reads the lists of an object.
func readLists(o *conf.Object) reach.Lists {
	return reach.Lists{Closed: o.Has("allow"), Allow: readEntries(o, "allow"), Deny: readEntries(o, "deny")}
}

// textsOf returns entries as they are written down, whatever their order and spelling in the configuration.
func textsOf(entries []reach.Entry) (list []string) {
	for _, e := range entries {
		list = append(list, e.String())
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func readEntries(o *conf.Object, key string) (list []reach.Entry) {
	if o.IsNull(key) { // as programs in Go write an empty list, which closes everything
		o.Fail(key, "a list, or no such key", "null")
	}
	var texts []string
	o.Strings(key, &texts)
	for i, text := range texts {
		e, err := reach.Parse(text)
		if err == nil && key == "deny" && e.Name != "" && e.Ports != (reach.Ports{}) {
			err = errors.New("a name is closed with all of its ports")
		}
		if err != nil {
			o.Fail(fmt.Sprintf("%s[%d]", key, i), "an address, a prefix or a name, such as 10.20.0.0/16, [2001:db8::53]:53/udp or api.example.com:443", fmt.Sprintf("%q: %v", text, err))
		}
		list = append(list, e)
	}
	return list
}
