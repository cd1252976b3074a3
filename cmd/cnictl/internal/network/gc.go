package network

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/netns"
)

// Collection is what a GC did to the attachments that libcni knows of.
type Collection struct {
	Network string               `json:"network"`
	Kept    []types.GCAttachment `json:"kept"`
	Removed []types.GCAttachment `json:"removed"`
}

// Attachments returns the network's attachments in libcni's cache.
func (n Node) Attachments(network string) ([]*libcni.NetworkAttachment, error) {
	all, err := n.CNI().GetCachedAttachments("")
	if err != nil {
		return nil, fmt.Errorf("read the cache of results: %w", err)
	}
	return slices.DeleteFunc(all, func(a *libcni.NetworkAttachment) bool { return a.Network != network }), nil
}

// GC removes every attachment of the network but those that are named and, unless all are to go, those that may be in use.
func (n Node) GC(ctx context.Context, list *libcni.NetworkConfigList, named []types.GCAttachment, all bool) (*Collection, error) {
	before, err := n.Attachments(list.Name)
	if err != nil {
		return nil, err
	}
	// Never nil, which libcni leaves out: plugins would then keep everything.
	valid := append([]types.GCAttachment{}, named...)
	for _, a := range before {
		if !all && !isGone(a.NetNS) {
			valid = append(valid, nameOf(a))
		}
	}
	failed := n.CNI().GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid})
	after, err := n.Attachments(list.Name)
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	c := &Collection{list.Name, []types.GCAttachment{}, []types.GCAttachment{}}
	for _, a := range after {
		c.Kept = append(c.Kept, nameOf(a))
	}
	for _, a := range before {
		if !slices.Contains(c.Kept, nameOf(a)) {
			c.Removed = append(c.Removed, nameOf(a))
		}
	}
	return c, failed
}

func nameOf(a *libcni.NetworkAttachment) types.GCAttachment {
	return types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName}
}

// isGone reports whether a namespace is seen to be gone: one that can't be seen may be there.
func isGone(path string) bool {
	if path == "" {
		return false
	}
	ns, err := netns.Open(path)
	if err == nil {
		_ = ns.Close()
	}
	return errors.Is(err, netns.ErrNotExist)
}
