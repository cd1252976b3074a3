package netns

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Pair is the two network namespaces of a call: the host's, which is the calling thread's, and the container's. Each is
// opened when it is asked for, once: many a DEL does without the container's. A nil Pair is the host's alone.
type Pair struct {
	path     string
	allowOwn bool // our own namespace counts as a container's
	asked    bool

	container    ns.NetNS
	err          error // why there is none
	unclear      error // why it can't be told whether there is one
	host, inside *netlink.Handle
	id           int // the host's number of the container's namespace
	hasID        bool
}

// NewPair returns the host's namespace and that of the container at a path, if one is there. Our own counts as none unless allowOwn is set.
func NewPair(path string, allowOwn bool) *Pair {
	return &Pair{path: path, allowOwn: allowOwn, asked: path == ""}
}

// NS returns the container's namespace. On ADD and CHECK it has been seen to be one, and not our own. On DEL it is nil when there is
// nothing to look into: no path was given, what was there is gone, or it is our own namespace.
func (p *Pair) NS() ns.NetNS {
	if p == nil {
		return nil
	}
	if !p.asked {
		p.container, p.err = p.openForeign()
		p.asked = true
	}
	return p.container
}

// Err says why the container's namespace can't be used, in a CNI error.
func (p *Pair) Err() error {
	p.NS()
	return p.err
}

// Unclear says why it can't be told whether a container's namespace is at the path; nil if it can.
func (p *Pair) Unclear() error {
	p.NS()
	return p.unclear
}

func (p *Pair) openForeign() (ns.NetNS, error) {
	n, err := Open(p.path)
	if err != nil {
		if !errors.Is(err, ErrNotExist) {
			p.unclear = err
		}
		return nil, types.NewError(types.ErrInvalidNetNS, "CNI_NETNS: "+err.Error(), "the runtime must make the namespace before it calls ADD or CHECK")
	}
	own, err := IsOwn(n)
	switch {
	case err != nil:
		_ = n.Close()
		p.unclear = err
		return nil, types.NewError(types.ErrInvalidNetNS, "CNI_NETNS: "+err.Error(), "give the plugin a /proc, or CAP_NET_ADMIN over its own network namespace")
	case own && !p.allowOwn:
		_ = n.Close()
		return nil, types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("CNI_NETNS %s is the plugin's own network namespace", p.path),
			"give the container a namespace of its own; to attach the host's all the same, set CNI_NETNS_OVERRIDE=1")
	}
	return n, nil
}

// Links returns the host's links, addresses and routes, by one socket for the whole call.
func (p *Pair) Links() *netlink.Handle {
	if p == nil {
		return &netlink.Handle{} // which opens a socket for each question
	}
	if p.host == nil {
		var err error
		if p.host, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			p.host = &netlink.Handle{} // says why it can't open one
		}
	}
	return p.host
}

// NetnsID returns the number by which the host counts the container's namespace: a veth has that of its other end. It is negative while the host has
// no link that leads there. The kernel looks for it among all numbers that it has given, so it is asked for once.
func (p *Pair) NetnsID() (int, error) {
	if p.hasID {
		return p.id, nil
	}
	id, err := p.Links().GetNetNsIdByFd(int(p.NS().Fd()))
	if err != nil {
		return -1, fmt.Errorf("look up the id of %s: %w", p.path, err)
	}
	p.id, p.hasID = id, id >= 0
	return id, nil
}

// LinksInside is Links for the container's namespace.
func (p *Pair) LinksInside() (*netlink.Handle, error) {
	if p.inside != nil {
		return p.inside, nil
	}
	err := p.Inside(func() error { return nil })
	return p.inside, err
}

// Inside calls f in the container's namespace. A panic in it is an error like any other.
func (p *Pair) Inside(f func() error) error {
	p.Links() // a socket belongs to the namespace in which it is opened
	return p.NS().Do(func(ns.NetNS) (err error) {
		defer func() {
			if bug := recover(); bug != nil {
				err = types.NewError(types.ErrInternal, fmt.Sprintf("bug: %v", bug), fmt.Sprintf("please report it with this trace: %s", debug.Stack()))
			}
		}()
		// The socket of LinksInside is opened on the first visit: one to open it alone takes longer than that.
		if p.inside == nil {
			if p.inside, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
				return err
			}
		}
		return f()
	})
}

// Close closes what was opened.
func (p *Pair) Close() {
	for _, h := range []*netlink.Handle{p.host, p.inside} {
		if h != nil {
			h.Close()
		}
	}
	if p.container != nil {
		_ = p.container.Close()
	}
	*p = Pair{asked: true}
}
