package dnsname

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// config is what the dnsname plugin reads of a configuration and CNI_ARGS; docs/plugins/dnsname.md explains each key.
type config struct {
	names       []string
	domain      string
	nodeServers bool
}

// shortID is how many digits of a container's id are its name, if it has no other.
const shortID = 12

// Keys of CNI_ARGS. Podman has the container's name as that of a pod.
const podName, podNamespace = "K8S_POD_NAME", "K8S_POD_NAMESPACE"

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(r *plugin.Request) (*config, error) {
	c := &config{nodeServers: true}
	r.Config.Bool("nodeServers", &c.nodeServers)
	r.Config.String("domainName", &c.domain)
	if c.domain = strings.ToLower(strings.TrimSuffix(c.domain, ".")); c.domain != "" {
		if err := names.Validate(c.domain); err != nil {
			r.Config.Fail("domainName", "a domain such as dns.podman", fmt.Sprintf("%q: %v", c.domain, err))
		}
	}
	var aliases []string
	r.Config.Object("runtimeConfig").Object("aliases").Strings(r.Network, &aliases)
	if err := r.Config.Err(); err != nil || r.Command == plugin.Status {
		return c, err
	}
	for _, alias := range aliases {
		if err := c.add(alias); err != nil {
			return nil, plugin.ConfigError("give the container another alias", "the alias %q can't be a name in DNS: %w", alias, err)
		}
	}
	own, err := ownNames(r)
	if err != nil {
		return nil, err
	}
	taken := c.names // the container's own name is first
	c.names = nil
	for _, name := range own {
		if err := c.add(name); err != nil {
			r.WarnOf(fmt.Errorf("the name %q can't be one in DNS: %w", name, err))
		}
	}
	if c.names == nil {
		_ = c.add(r.ContainerID[:min(len(r.ContainerID), shortID)])
	}
	for _, alias := range taken {
		_ = c.add(alias)
	}
	return c, nil
}

// add adds a name that is not there yet.
func (c *config) add(name string) error {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	full := name
	if c.domain != "" {
		full += "." + c.domain
	}
	if err := names.Validate(name); err != nil {
		return err
	}
	if err := names.Validate(full); err != nil {
		return fmt.Errorf("with the domain %w", err)
	}
	if !slices.Contains(c.names, name) {
		c.names = append(c.names, name)
	}
	return nil
}

// ownNames returns the container's names besides aliases: none if the runtime gives it none.
func ownNames(r *plugin.Request) (list []string, err error) {
	args, err := plugin.Arguments(r.Args+";IgnoreUnknown=1", podName, podNamespace) // other plugins have arguments of their own
	if err != nil || args[podName] == "" {
		return nil, err
	}
	list = []string{args[podName]}
	if args[podNamespace] != "" {
		list = append(list, args[podName]+"."+args[podNamespace])
	}
	return list, nil
}
