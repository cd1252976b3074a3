package node

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// configuration is what is of interest in one that an ADD had.
type configuration struct {
	plugins      []string
	master       string
	limits       *Limits
	reach        *Reach
	hasLeases    bool            // of host-local
	capabilities map[string]bool // that its plugins have: what the runtime gives for others reaches nobody
}

// configuration reads a configuration. Most attachments of a network had the same.
func (n *Node) configuration(text []byte) *configuration {
	c := n.configurations[string(text)]
	if c == nil {
		c = readConfiguration(text, n.plugins)
		n.configurations[string(text)] = c
	}
	return c
}

func readConfiguration(text []byte, all plugin.Table) *configuration {
	l, err := netconf.Parse("", text, all.Find)
	if err != nil {
		return &configuration{capabilities: map[string]bool{"portMappings": true, "bandwidth": true}} // it is not known
	}
	c := &configuration{capabilities: map[string]bool{}}
	c.hasLeases = slices.ContainsFunc(l.Inside(), func(p *netconf.Part) bool { return p.Facts.LeasesInFiles })
	for _, p := range l.Plugins {
		c.plugins = append(c.plugins, p.Named)
		for _, capability := range p.Config.Object("capabilities").TrueKeys() {
			c.capabilities[capability] = true
		}
		c.master = cmp.Or(c.master, p.Facts.Bridge, p.Master())
		if p.Facts.ClosesEgress {
			c.reach = ReadReach(p.Config.JSON())
		}
		if p.Config.Has("ingressRate") || p.Config.Has("egressRate") {
			var in, out int
			p.Config.Int("ingressRate", &in)
			p.Config.Int("egressRate", &out)
			c.limits = &Limits{uint64(max(in, 0)), uint64(max(out, 0))}
		}
	}
	return c
}

func (a *Attachment) readArguments(capabilities map[string]bool) {
	args := map[string]string{}
	for _, pair := range a.Result.CniArgs {
		args[pair[0]] = pair[1]
	}
	if name := args["K8S_POD_NAME"]; name != "" {
		a.Pod = strings.TrimPrefix(args["K8S_POD_NAMESPACE"]+"/"+name, "/") // podman's are in none
	}
	text, err := json.Marshal(a.Result.CapabilityArgs)
	if err != nil {
		return
	}
	var given struct {
		PortMappings []Port
		Bandwidth    *Limits
		Egress       json.RawMessage
	}
	_ = json.Unmarshal(text, &given) // what is of another form is the runtime's own
	for _, p := range given.PortMappings {
		if p.Protocol = cmp.Or(strings.ToLower(p.Protocol), "tcp"); capabilities["portMappings"] && p.HostPort != 0 {
			a.Ports = append(a.Ports, p)
		}
	}
	if given.Bandwidth != nil && capabilities["bandwidth"] {
		a.Limits = given.Bandwidth
	}
	if a.Reach != nil && given.Egress != nil && capabilities["egress"] {
		a.Reach.Container = ReadReach(given.Egress)
	}
}
