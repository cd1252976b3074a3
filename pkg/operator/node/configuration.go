package node

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// configuration is what is of interest in one that an ADD had.
type configuration struct {
	plugins      []string
	master       string
	limits       *Limits
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
	config, err := conf.Parse(text)
	if err != nil {
		return &configuration{capabilities: map[string]bool{"portMappings": true, "bandwidth": true}} // it is not known
	}
	c := &configuration{capabilities: map[string]bool{}}
	config = config.Lenient()
	for _, o := range objectsIn(config) {
		name := ""
		o.String("type", &name)
		c.hasLeases = c.hasLeases || all.Find(name).Facts(o).LeasesInFiles
	}
	add := func(p *conf.Object) {
		name, inContainer := "", false
		p.String("type", &name)
		master := all.Find(name).Facts(p).Bridge
		c.plugins = append(c.plugins, name)
		for _, capability := range p.Object("capabilities").TrueKeys() {
			c.capabilities[capability] = true
		}
		p.String("master", &master)
		p.Bool("linkInContainer", &inContainer)
		if c.master == "" && !inContainer {
			c.master = master
		}
		if p.Has("ingressRate") || p.Has("egressRate") {
			var in, out int
			p.Int("ingressRate", &in)
			p.Int("egressRate", &out)
			c.limits = &Limits{uint64(max(in, 0)), uint64(max(out, 0))}
		}
	}
	if config.Has("plugins") {
		config.Objects("plugins", add)
	} else { // one plugin alone, in the old form
		add(config)
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
}
