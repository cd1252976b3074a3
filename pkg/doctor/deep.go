package doctor

import (
	"context"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// checkAttachments calls CHECK for each attachment that is alive, as a runtime can.
func checkAttachments(ctx context.Context, s *subject) (list []Finding, err error) {
	places, err := s.places()
	for _, n := range s.networks {
		for _, a := range n.alive {
			if a.Result == nil {
				continue
			}
			wrong := check1(ctx, places[0].dirs, a)
			if wrong == nil {
				continue
			}
			e := plugin.AsError(wrong)
			list = append(list, found("attachment-broken", n.Name, command("cnictl", "repair", n.Name), "%s/%s of network %s is not as it was made: %s",
				a.ContainerID, a.IfName, n.Name, e.Msg))
		}
	}
	return list, err
}

// check1 calls CHECK for one attachment. Before version 0.4.0 there is none.
func check1(ctx context.Context, dirs []string, a *node.Attachment) error {
	config, err := libcni.NetworkConfFromBytes(a.Result.Config)
	if err != nil {
		return nil // of a single plugin, in the old form
	}
	if knows, err := version.GreaterThanOrEqualTo(config.CNIVersion, "0.4.0"); err != nil || !knows {
		return nil
	}
	cni := libcni.NewCNIConfigWithCacheDir(dirs, a.Result.Dir, nil)
	return cni.CheckNetworkList(ctx, config, &libcni.RuntimeConf{
		ContainerID: a.ContainerID, NetNS: a.Netns, IfName: a.IfName, Args: a.Result.CniArgs, CapabilityArgs: a.Result.CapabilityArgs, CacheDir: a.Result.Dir,
	})
}
