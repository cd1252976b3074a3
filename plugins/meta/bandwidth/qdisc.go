package bandwidth

import (
	"encoding/binary"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
)

// rootQdisc returns the kind of what queues the packets that a link of the calling thread's namespace sends, "" if nothing does, and
// its values if it is a token bucket filter. The kernel is asked for this one: a list of all misses some while links go.
func rootQdisc(index int) (kind string, tbf *netlink.Tbf, err error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_ACK|unix.NLM_F_ECHO) // without an echo older kernels don't answer
	request.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: netlink.HANDLE_ROOT})
	answers, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	if err != nil || len(answers) == 0 {
		return "", nil, link.IgnoreNotFound(err)
	}
	attrs, err := nl.ParseRouteAttr(answers[0][nl.SizeofTcMsg:])
	for _, a := range attrs {
		switch a.Attr.Type {
		case nl.TCA_KIND:
			kind = unix.ByteSliceToString(a.Value)
		case nl.TCA_OPTIONS:
			if kind == "tbf" {
				tbf, err = readTBF(a.Value)
			}
		}
	}
	return kind, tbf, err
}

func readTBF(options []byte) (*netlink.Tbf, error) {
	attrs, err := nl.ParseRouteAttr(options)
	tbf := &netlink.Tbf{}
	for _, a := range attrs {
		switch {
		case a.Attr.Type == nl.TCA_TBF_PARMS && len(a.Value) >= nl.SizeofTcTbfQopt:
			values := nl.DeserializeTcTbfQopt(a.Value)
			tbf.Rate, tbf.Buffer, tbf.Limit = uint64(values.Rate.Rate), values.Buffer, values.Limit
		case a.Attr.Type == nl.TCA_TBF_RATE64 && len(a.Value) >= 8: // follows
			tbf.Rate = binary.NativeEndian.Uint64(a.Value)
		}
	}
	return tbf, err
}

// targetsOf returns the indexes of the links that what one link receives is sent through.
func targetsOf(h *netlink.Handle, linkIndex int) (to []int, err error) {
	filters, err := filtersOn(h, linkIndex)
	for _, f := range filters {
		if f.RedirIndex != 0 {
			to = append(to, f.RedirIndex)
		}
	}
	return to, err
}

// filtersOn returns the filters of kind u32 for what a link receives.
func filtersOn(h *netlink.Handle, linkIndex int) (list []*netlink.U32, err error) {
	filters, err := link.Uninterrupted(func() ([]netlink.Filter, error) {
		return h.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: linkIndex}}, ingressHandle)
	})
	for _, f := range filters {
		if u32, ok := f.(*netlink.U32); ok {
			list = append(list, u32)
		}
	}
	return list, link.IgnoreNotFound(err)
}

// leadsNowhere reports whether a filter sends packets through a link that is gone.
func leadsNowhere(f *netlink.U32) bool {
	return f.RedirIndex == 0 && slices.ContainsFunc(f.Actions, func(a netlink.Action) bool { return a.Type() == "mirred" })
}
