package collect

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	cni "github.com/containernetworking/cni/pkg/version"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// delLimit is how long a plugin's DEL may take. A plugin that hangs does not keep others from their DEL.
const delLimit = time.Minute

// DelList calls the DEL of all plugins of a list as libcni does, the last one first. But it goes on past one that is missing or fails, and needs no
// cache. The error names each of those. prev is what ADD returned; nil is not known.
func DelList(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, prev *types100.Result, paths []string, exec invoke.Exec) error {
	inject := map[string]any{"name": list.Name, "cniVersion": list.CNIVersion}
	if hasPrev, err := cni.GreaterThanOrEqualTo(list.CNIVersion, "0.4.0"); err == nil && hasPrev && prev != nil {
		if result, err := prev.GetAsVersion(list.CNIVersion); err == nil {
			inject["prevResult"] = result
		}
	}
	args := &invoke.Args{
		Command: "DEL", ContainerID: rt.ContainerID, NetNS: rt.NetNS, PluginArgs: rt.Args, IfName: rt.IfName, Path: strings.Join(paths, string(filepath.ListSeparator)),
	}
	var errs []error
	for _, p := range slices.Backward(list.Plugins) {
		if err := delOne(ctx, p, inject, rt.CapabilityArgs, args, paths, exec); err != nil {
			errs = append(errs, fmt.Errorf("plugin %s: %w", p.Network.Type, err))
		}
	}
	return errors.Join(errs...)
}

// DelKept is DelList with the result that libcni has kept. That goes with the attachment, but stays for the next DEL if a plugin is missing or fails.
func DelKept(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, cacheDir string, paths []string, exec invoke.Exec) error {
	key := plugin.Key{Network: list.Name, ContainerID: rt.ContainerID, IfName: rt.IfName}
	path := node.PathOf(cacheDir, key)
	var prev *types100.Result
	if r, err := node.ReadResult(path); err == nil && r.Key() == key {
		prev = r.Result
	}
	if err := DelList(ctx, list, rt, prev, paths, exec); err != nil {
		return err
	}
	return state.Remove(path)
}

func delOne(ctx context.Context, p *libcni.PluginConfig, inject, capabilities map[string]any, args *invoke.Args, paths []string, exec invoke.Exec) error {
	path, err := exec.FindInPath(p.Network.Type, paths)
	if err != nil {
		return err
	}
	wanted := map[string]any{}
	for name, isAsked := range p.Network.Capabilities {
		if value, ok := capabilities[name]; ok && isAsked {
			wanted[name] = value
		}
	}
	if p, err = libcni.InjectConf(p, inject); err == nil && len(wanted) > 0 {
		p, err = libcni.InjectConf(p, map[string]any{"runtimeConfig": wanted})
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, delLimit, fmt.Errorf("it has not ended after %v", delLimit))
	defer cancel()
	return invoke.ExecPluginWithoutResult(ctx, path, p.Bytes, args, exec)
}
