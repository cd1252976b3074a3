package node

import (
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// TestHostEnd: a veth that has the name of an attachment's host end and is another's, or leads elsewhere, is not its.
func TestHostEnd(t *testing.T) {
	key := plugin.Key{Network: "net", ContainerID: "web", IfName: "eth0"}
	here, elsewhere := &Namespace{Inode: 1}, &Namespace{Inode: 2}
	reported := &Result{Result: &types100.Result{Interfaces: []*types100.Interface{{Name: "vethother"}}}}
	for _, tt := range []struct {
		name string
		link Link
		isIt bool
	}{
		{"its own", Link{Name: key.HostEnd(0), Kind: "veth", Owner: "net/web/eth0"}, true},
		{"by the next salt", Link{Name: key.HostEnd(1), Kind: "veth", Owner: "net/web/eth0"}, true},
		{"another's", Link{Name: key.HostEnd(0), Kind: "veth", Owner: "net/db/eth0"}, false},
		{"nobody's", Link{Name: key.HostEnd(0), Kind: "veth"}, false},
		{"no veth", Link{Name: key.HostEnd(0), Kind: "dummy", Owner: "net/web/eth0"}, false},
		{"as the result says", Link{Name: "vethother", Kind: "veth", Link: leading(1)}, true},
		{"as the result says, and leads elsewhere", Link{Name: "vethother", Kind: "veth", Link: leading(2)}, false},
	} {
		n := &Node{ids: map[int]*Namespace{1: here, 2: elsewhere}}
		_, _ = n.links.get(func() (*links, error) { return &links{byName: map[string]*Link{tt.link.Name: &tt.link}}, nil })
		a := &Attachment{Network: key.Network, ContainerID: key.ContainerID, IfName: key.IfName, Owner: "net/web/eth0", Result: reported}
		if got := n.hostEnd(a, here); (got != nil) != tt.isIt {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

// leading is a veth that leads into the namespace with an id.
func leading(id int) netlink.Link {
	return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{NetNsID: id}}
}
