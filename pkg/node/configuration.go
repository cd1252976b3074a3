package node

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// readConfiguration reads what the configuration says that ADD had, and returns the capabilities that its plugins have: what the runtime
// gives for others reaches nobody.
func (a *Attachment) readConfiguration(all plugin.Table) (capabilities map[string]bool) {
	config, err := conf.Parse(a.Result.Config)
	if err != nil {
		return map[string]bool{"portMappings": true, "bandwidth": true} // it is not known
	}
	capabilities = map[string]bool{}
	config = config.Lenient()
	add := func(p *conf.Object) {
		name, master, inContainer := "", "", false
		p.String("type", &name)
		if row := all.Find(name); row != nil && row.Name == "bridge" {
			master = "cni0" // unless it is said
			p.String("bridge", &master)
		}
		a.Plugins = append(a.Plugins, name)
		for _, c := range p.Object("capabilities").TrueKeys() {
			capabilities[c] = true
		}
		p.String("master", &master)
		p.Bool("linkInContainer", &inContainer)
		if a.Master == "" && !inContainer {
			a.Master = master
		}
		if p.Has("ingressRate") || p.Has("egressRate") {
			var in, out int
			p.Int("ingressRate", &in)
			p.Int("egressRate", &out)
			a.Limits = &Limits{uint64(max(in, 0)), uint64(max(out, 0))}
		}
	}
	if config.Has("plugins") {
		config.Objects("plugins", add)
	} else { // one plugin alone, in the old form
		add(config)
	}
	return capabilities
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
