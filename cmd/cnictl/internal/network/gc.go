package network

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/netns"
)

// Collection is what a GC did to the attachments that libcni knows of.
type Collection struct {
	Kept    []types.GCAttachment `json:"kept"`
	Removed []types.GCAttachment `json:"removed"`
}

// Attachments returns the network's attachments in libcni's cache.
func (n Node) Attachments(network string) ([]*libcni.NetworkAttachment, error) {
	all, err := n.CNI().GetCachedAttachments("")
	if err != nil {
		return nil, fmt.Errorf("read the cache of results: %w", err)
	}
	var own []*libcni.NetworkAttachment
	for _, a := range all {
		if a.Network == network {
			own = append(own, a)
		}
	}
	return own, nil
}

// Live returns those of the attachments that may still be in use. Only an
// attachment whose namespace is seen to be gone is not.
func Live(attachments []*libcni.NetworkAttachment) []types.GCAttachment {
	live := []types.GCAttachment{}
	for _, a := range attachments {
		if !isGone(a.NetNS) {
			live = append(live, types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName})
		}
	}
	return live
}

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

// ParseValid reads ID/IFNAME.
func ParseValid(text string) (types.GCAttachment, error) {
	id, ifName, _ := strings.Cut(text, "/")
	if id == "" || ifName == "" {
		return types.GCAttachment{}, fmt.Errorf("--valid %q is not CONTAINER-ID/INTERFACE, such as 3f2a…/eth0", text)
	}
	return types.GCAttachment{ContainerID: id, IfName: ifName}, nil
}

// GC removes every attachment of the network but the valid ones, of which none
// at all is an empty list.
func (n Node) GC(ctx context.Context, list *libcni.NetworkConfigList, valid []types.GCAttachment) (*Collection, error) {
	before, err := n.Attachments(list.Name)
	if err != nil {
		return nil, err
	}
	// libcni leaves out a list that is nil, and plugins then keep everything.
	if valid == nil {
		valid = []types.GCAttachment{}
	}
	failed := n.CNI().GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid})
	after, err := n.Attachments(list.Name)
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	return compare(before, after), failed
}

// compare tells which attachments of before are gone after.
func compare(before, after []*libcni.NetworkAttachment) *Collection {
	c := &Collection{Kept: []types.GCAttachment{}, Removed: []types.GCAttachment{}}
	there := make(map[types.GCAttachment]bool)
	for _, a := range after {
		there[types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName}] = true
	}
	for _, a := range before {
		id := types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName}
		if there[id] {
			c.Kept = append(c.Kept, id)
		} else {
			c.Removed = append(c.Removed, id)
		}
	}
	return c
}
