package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// Host says what is on this host, whoever has made it: links, routes, uplinks, mounts and processes. Each list is read when it is asked for
// first, by the network namespace of that thread, and once. The zero value has read nothing.
type Host struct {
	links     once[*links]
	routes    once[[]netlink.Route]
	mounts    once[[]*mountinfo.Info]
	processes once[[]Process]
}

// once is a list that is read at the first question.
type once[T any] struct {
	sync.Once
	list T
	err  error
}

func (o *once[T]) get(read func() (T, error)) (T, error) {
	o.Do(func() { o.list, o.err = read() })
	return o.list, o.err
}

// Links returns the links of the host, in the order in which they were made. ReadLinks says why some may be missing.
func (h *Host) Links() []*Link {
	l, _ := h.links.get(readLinks)
	return slices.SortedFunc(maps.Values(l.byIndex), func(a, b *Link) int { return cmp.Compare(a.Link.Attrs().Index, b.Link.Attrs().Index) })
}

// ReadLinks reads the links, unless that was done, and returns the error of that.
func (h *Host) ReadLinks() error {
	_, err := h.links.get(readLinks)
	return err
}

// Link returns the host's link called name, nil if there is none.
func (h *Host) Link(name string) *Link {
	l, _ := h.links.get(readLinks)
	return l.byName[name]
}

// LinkNumbered returns the host's link with an index, nil if there is none.
func (h *Host) LinkNumbered(index int) *Link {
	l, _ := h.links.get(readLinks)
	return l.byIndex[index]
}

// Routes returns the routes of all tables, those of IPv4 first.
func (h *Host) Routes() ([]netlink.Route, error) {
	return h.routes.get(func() (list []netlink.Route, err error) {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, failed := link.Routes(&netlink.Handle{}, family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
			list, err = append(list, routes...), errors.Join(err, failed)
		}
		if err != nil {
			err = fmt.Errorf("list the routes of the host: %w", err)
		}
		return list, err
	})
}

// Rules returns the policy rules of both families.
func (*Host) Rules() ([]netlink.Rule, error) {
	rules, err := link.Rules(&netlink.Handle{})
	if err != nil {
		err = fmt.Errorf("list the policy rules of the host: %w", err)
	}
	return rules, err
}

// IsDefault reports whether a route leads to all addresses.
func IsDefault(r netlink.Route) bool { return r.Dst == nil || result.Prefix(*r.Dst).Bits() == 0 }

// Uplinks returns the links by which the host reaches the outside, each once: those of its default routes, the one that counts first.
func (h *Host) Uplinks() (list []*Link, err error) {
	routes, err := h.Routes()
	for _, hop := range slices.Concat(hops(routes, netlink.FAMILY_V4), hops(routes, netlink.FAMILY_V6)) {
		if l := h.LinkNumbered(hop.LinkIndex); l != nil && !slices.Contains(list, l) {
			list = append(list, l)
		}
	}
	return list, err
}

// Gateways returns those of the default routes that count first, one of a family.
func (h *Host) Gateways() (list []netip.Addr, err error) {
	routes, err := h.Routes()
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if of := hops(routes, family); len(of) > 0 && of[0].Gw != nil {
			list = append(list, result.Addr(of[0].Gw))
		}
	}
	return list, err
}

// hops returns where default routes of a family lead to.
func hops(routes []netlink.Route, family int) (list []*netlink.NexthopInfo) {
	isWanted := func(r netlink.Route) bool {
		return r.Family == family && r.Table == unix.RT_TABLE_MAIN && r.Type == unix.RTN_UNICAST && IsDefault(r)
	}
	sorted := slices.SortedStableFunc(slices.Values(routes), func(a, b netlink.Route) int { return cmp.Compare(a.Priority, b.Priority) })
	for _, r := range sorted {
		switch {
		case !isWanted(r):
		case len(r.MultiPath) > 0:
			list = append(list, r.MultiPath...)
		default:
			list = append(list, &netlink.NexthopInfo{LinkIndex: r.LinkIndex, Gw: r.Gw})
		}
	}
	return list
}

// IPv6Off says why a link can have no addresses of IPv6, or one that is made yet: the sysctl that switches it off, LowMTU or NoIPv6. It is "" if it can.
func (h *Host) IPv6Off(link string) string {
	l := h.Link(link)
	if l == nil {
		link = "default"
	}
	key := "net/ipv6/conf/" + link + "/disable_ipv6"
	switch value, err := sysctl.Get(key); {
	case errors.Is(err, fs.ErrNotExist) && l != nil && l.MTU < LeastMTU6:
		return LowMTU
	case errors.Is(err, fs.ErrNotExist):
		return NoIPv6
	case value == "1":
		return key
	}
	return ""
}

const (
	NoIPv6 = "ipv6.disable=1"    // why links of a kernel without IPv6 have no addresses of it
	LowMTU = "an MTU below 1280" // why a link has none
)

// LeastMTU6 is the least that IPv6 works with (RFC 8200).
const LeastMTU6 = 1280

// Mounts returns what is mounted where this process sees it. Lines that are none are left out: what is in them can be a user's choice.
func (h *Host) Mounts() ([]*mountinfo.Info, error) {
	return h.mounts.get(func() (list []*mountinfo.Info, err error) {
		text, err := os.ReadFile("/proc/self/mountinfo")
		for line := range bytes.Lines(text) {
			if m, err := mountinfo.GetMountsFromReader(bytes.NewReader(line), nil); err == nil {
				list = append(list, m...)
			}
		}
		return list, err
	})
}

// Processes returns the processes of the host's network namespace, where the daemons are that look after it.
func (h *Host) Processes() ([]Process, error) { return h.processes.get(readProcesses) }
