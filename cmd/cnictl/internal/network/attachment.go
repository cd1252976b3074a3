package network

import (
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
	if p.Netns != "" {
		path, err := filepath.Abs(p.Netns)
		if err != nil {
			return nil, err
		}
		rt.NetNS = path
	}
	if rt.ContainerID == "" {
		if rt.NetNS == "" {
			return nil, errors.New("neither a namespace nor a container id is given; name one with NETNS or --id")
		}
		rt.ContainerID = defaultID(rt.NetNS)
	}
	var err error
	if rt.Args, err = parseArgs(p.Args); err != nil {
		return nil, err
	}
	rt.CapabilityArgs, err = p.capabilities()
	return rt, err
}

// defaultID is the id that cnitool makes, so that either finds the other's
// attachments.
func defaultID(netns string) string {
	sum := sha512.Sum512([]byte(netns))
	return fmt.Sprintf("cnitool-%x", sum[:10])
}

// parseArgs reads CNI_ARGS. Like the plugins of cnibox, and unlike cnitool, it
// takes a trailing ";" and values with a "=" in them.
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
	if len(p.Publish) == 0 {
		return caps, nil
	}
	given, isList := caps[portMappings].([]any)
	if !isList && caps[portMappings] != nil {
		return nil, fmt.Errorf("CAP_ARGS: %s must be a list", portMappings)
	}
	all := slices.Clone(given)
	for _, text := range p.Publish {
		port, err := ParsePort(text)
		if err != nil {
			return nil, err
		}
		all = append(all, port)
	}
	if caps == nil {
		caps = make(map[string]any)
	}
	caps[portMappings] = all
	return caps, nil
}

// RequirePublisher makes sure that a plugin of the network is told about
// published ports. libcni drops what no plugin asks for.
func RequirePublisher(list *libcni.NetworkConfigList) error {
	for _, plugin := range list.Plugins {
		if plugin.Network.Capabilities[portMappings] {
			return nil
		}
	}
	return fmt.Errorf(`network %s can't publish ports: none of its plugins has the capability %s; add {"type": "portmap", "capabilities": {"portMappings": true}} to its plugins`,
		list.Name, portMappings)
}

// Complete fills in what was not given, for CHECK and DEL, from what libcni has
// kept of the ADD: namespace, arguments and capabilities.
func (n Node) Complete(network string, rt *libcni.RuntimeConf) error {
	attachments, err := n.CNI().GetCachedAttachments(rt.ContainerID)
	if err != nil {
		return fmt.Errorf("read the cache of results: %w", err)
	}
	for _, a := range attachments {
		if a.Network != network || a.IfName != rt.IfName {
			continue
		}
		if rt.NetNS == "" {
			rt.NetNS = a.NetNS
		}
		if rt.Args == nil {
			rt.Args = a.CniArgs
		}
		if rt.CapabilityArgs == nil {
			rt.CapabilityArgs = a.CapabilityArgs
		}
	}
	return nil
}
