package network

import (
	"cmp"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// portMappings is the capability of plugins that publish ports.
const portMappings = "portMappings"

// Parameters are an attachment's parameters as a person gives them.
type Parameters struct {
	Netns   string // path of the container's network namespace
	ID      string // container id; "" is made from Netns
	IfName  string
	Args    string   // CNI_ARGS: KEY=VALUE;KEY=VALUE
	CapArgs string   // CAP_ARGS: a JSON object, capability to value
	Publish []string // see ParsePort
}

// RuntimeConf returns the parameters in libcni's form.
func (p Parameters) RuntimeConf() (*libcni.RuntimeConf, error) {
	rt := &libcni.RuntimeConf{ContainerID: p.ID, IfName: p.IfName}
	var err error
	if p.Netns != "" {
		if rt.NetNS, err = filepath.Abs(p.Netns); err != nil {
			return nil, err
		}
	}
	switch {
	case p.ID != "":
	case p.Netns == "":
		return nil, errors.New("the namespace is missing: give its path as NETNS, such as /run/netns/web (ip netns add web); or --id, of an attachment that was made before")
	default: // the id that cnitool makes, so that either finds the other's attachments
		sum := sha512.Sum512([]byte(rt.NetNS))
		rt.ContainerID = fmt.Sprintf("cnitool-%x", sum[:10])
	}
	if rt.Args, err = parseArgs(p.Args); err != nil {
		return nil, err
	}
	rt.CapabilityArgs, err = p.capabilities()
	return rt, err
}

// parseArgs reads CNI_ARGS. Like the plugins of cnibox, and unlike cnitool, it takes a trailing ";" and values with a "=" in them.
func parseArgs(text string) ([][2]string, error) {
	var args [][2]string
	for _, pair := range strings.Split(text, ";") {
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		if key == "" || value == "" {
			return nil, fmt.Errorf("CNI_ARGS: %q is not KEY=VALUE; separate pairs with ';'", pair)
		}
		args = append(args, [2]string{key, value})
	}
	return args, nil
}

func (p Parameters) capabilities() (map[string]any, error) {
	var caps map[string]any
	if p.CapArgs != "" {
		if err := json.Unmarshal([]byte(p.CapArgs), &caps); err != nil {
			return nil, fmt.Errorf(`CAP_ARGS: %w; it must be an object like {"mac": "02:00:00:00:00:01"}`, err)
		}
	}
	if p.Publish == nil {
		return caps, nil
	}
	ports, isList := caps[portMappings].([]any)
	if !isList && caps[portMappings] != nil {
		return nil, fmt.Errorf("CAP_ARGS: %s must be a list", portMappings)
	}
	for _, text := range p.Publish {
		port, err := ParsePort(text)
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	if caps == nil {
		caps = make(map[string]any)
	}
	caps[portMappings] = ports
	return caps, nil
}

// RequirePublisher makes sure that a plugin of the network is told about published ports. libcni drops what no plugin asks for.
func RequirePublisher(list *libcni.NetworkConfigList) error {
	asks := func(plugin *libcni.PluginConfig) bool { return plugin.Network.Capabilities[portMappings] }
	if slices.ContainsFunc(list.Plugins, asks) {
		return nil
	}
	return fmt.Errorf(`network %s can't publish ports: none of its plugins has the capability %s; add {"type": "portmap", "capabilities": {"portMappings": true}} to its plugins`,
		list.Name, portMappings)
}

// Complete fills in what was not given, for CHECK and DEL, from what libcni has kept of the ADD. It returns the network as it
// was then, nil if nothing is kept.
func (n Node) Complete(network string, rt *libcni.RuntimeConf) (kept []byte, err error) {
	attachments, err := n.Attachments(network)
	for _, a := range attachments {
		if a.ContainerID != rt.ContainerID || a.IfName != rt.IfName {
			continue
		}
		rt.NetNS = cmp.Or(rt.NetNS, a.NetNS)
		if rt.Args == nil {
			rt.Args = a.CniArgs
		}
		if rt.CapabilityArgs == nil {
			rt.CapabilityArgs = a.CapabilityArgs
		}
		kept = a.Config
	}
	return kept, err
}
