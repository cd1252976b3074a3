package network

import (
	"cmp"
	"context"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
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
	return plugin.ConfigError(`add {"type": "portmap", "capabilities": {"portMappings": true}} to its plugins`, "network %s can't publish ports: none of its plugins has the capability %s",
		list.Name, portMappings)
}

func keyOf(network string, rt *libcni.RuntimeConf) plugin.Key {
	return plugin.Key{Network: network, ContainerID: rt.ContainerID, IfName: rt.IfName}
}

// CheckResult makes sure that libcni can read and write its result of an attachment: it would wait for a pipe, and read a file of any size.
func (n Node) CheckResult(network string, rt *libcni.RuntimeConf) error {
	_, err := state.Read(node.PathOf(n.CacheDirs[0], keyOf(network, rt)))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return plugin.CodeErrorf(types.ErrIOFailure, "remove it, or name another directory with --cache-dir", "libcni's result of the attachment can't be used: %w", err)
}

// Complete fills in what was not given, for CHECK and DEL, from what libcni has kept of the ADD. It returns the network as it
// was then, nil if nothing is kept that can be read: DEL does without.
func (n *Node) Complete(network string, rt *libcni.RuntimeConf) (cached []byte, err error) {
	n.chooseCache(keyOf(network, rt))
	if err := n.CheckResult(network, rt); err != nil {
		return nil, err
	}
	key := keyOf(network, rt)
	r, err := node.ReadResult(node.PathOf(n.CacheDirs[0], key))
	if err != nil || r.Key() != key {
		return nil, nil
	}
	rt.NetNS = cmp.Or(rt.NetNS, r.NetNS)
	if rt.Args == nil {
		rt.Args = r.CniArgs
	}
	if rt.CapabilityArgs == nil {
		rt.CapabilityArgs = r.CapabilityArgs
	}
	return r.Config, nil
}

// RequireResult refuses an attachment of which no cache has a result: there is nothing to compare it with.
func (n Node) RequireResult(ctx context.Context, network string, rt *libcni.RuntimeConf) error {
	if _, err := os.Lstat(node.PathOf(n.CacheDirs[0], keyOf(network, rt))); !errors.Is(err, fs.ErrNotExist) {
		return nil // what it is, libcni says
	}
	var names []string
	for _, a := range node.Read(ctx, n.Options).Attachments {
		if a.Network == network {
			names = append(names, a.ContainerID+"/"+a.IfName)
		}
	}
	return lookup.NotOne(types.ErrUnknownContainer, rt.ContainerID+"/"+rt.IfName, names, "`cnictl show --wide --network "+network+"` lists all; name another directory of results with --cache-dir",
		"no result of %s of container %s on network %s", rt.IfName, rt.ContainerID, network)
}

// Holds reports whether something of an attachment is on this node: also what an ADD left that failed, of which libcni keeps no result.
func (n Node) Holds(ctx context.Context, network, id, ifname string) bool {
	return slices.ContainsFunc(node.Read(ctx, n.Options).Attachments, func(a *node.Attachment) bool {
		return a.Network == network && a.ContainerID == id && a.IfName == ifname
	})
}

// RequireNew refuses the id of another container of the network, whose attachment a DEL would take away: one that libcni has a result
// of, readable or not, or for which something is held.
func (n Node) RequireNew(ctx context.Context, list *libcni.NetworkConfigList, id string) error {
	now := node.Read(ctx, n.Options)
	for _, a := range now.Attachments {
		if a.Network == list.Name && a.ContainerID == id {
			return plugin.CodeErrorf(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("choose another --id, or detach it: cnictl del %s --id %s --ifname %s", list.Name, id, a.IfName),
				"container %s is attached to network %s already", id, list.Name)
		}
	}
	for _, u := range now.Unread {
		if u.IsQuestion() {
			return plugin.CodeErrorf(types.ErrTryAgainLater, "make it readable, and repeat this", "it is not known whether container %s is attached to network %s: %s can't be read: %s", id, list.Name, u.What, u.Why)
		}
		if strings.HasPrefix(filepath.Base(u.What), list.Name+"-"+id+"-") {
			return plugin.CodeErrorf(types.ErrInvalidEnvironmentVariables, "choose another --id", "container %s may be attached to network %s already, of which libcni's result can't be read: %s: %s",
				id, list.Name, u.What, u.Why)
		}
	}
	return nil
}
