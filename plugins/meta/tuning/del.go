package tuning

import (
	"context"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Del gives the interface the attributes that Add recorded, if it is still
// there, and removes the record. Sysctls go with the namespace.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	b := newBackup(dataDir(r.Config), r.Key)
	recorded, found, err := b.read()
	if err != nil {
		return err
	}
	if found {
		if err := restore(ctx, r, recorded); err != nil {
			failed := plugin.AsError(err)
			return types.NewError(failed.Code, failed.Msg, "set it by hand, or remove the file "+b.path+" if it does not matter: the next DEL then succeeds")
		}
	}
	return b.remove()
}

// restore sets the recorded attributes. It tries all of them.
func restore(ctx context.Context, r *plugin.Request, recorded attributes) error {
	if r.NS() == nil {
		return nil
	}
	return r.Inside(func() error {
		l, err := netlink.LinkByName(r.IfName)
		if link.IsNotFound(err) {
			return nil
		}
		if err != nil || isOther(l, r, recorded) {
			return err
		}
		var failed []string
		for _, a := range recorded.list() {
			if err := r.Step(ctx, "set "+a.name+" of "+r.IfName+" back to "+a.value); err != nil {
				return err
			}
			if err := a.set(l); err != nil && !link.IsNotFound(err) {
				failed = append(failed, attributeError("", r, a, err).Error())
			}
		}
		if failed != nil {
			return plugin.Errorf("", "%s", strings.Join(failed, "; "))
		}
		return nil
	})
}

// isOther tells whether the link is not the attachment's: the path of its
// namespace can have been given to another container since. The attachment's
// has one of the MAC addresses that it is known to have had.
func isOther(l netlink.Link, r *plugin.Request, recorded attributes) bool {
	reported := reportedMACs(r)
	if len(reported) == 0 {
		return false // there is nothing to tell it by
	}
	known := reported
	wanted, _ := wantedAttributes(r)
	known = append(known, wanted.mac.String(), recorded.mac.String())
	return !slices.Contains(known, l.Attrs().HardwareAddr.String())
}

// reportedMACs returns what the results of the chain say of the container's
// interface.
func reportedMACs(r *plugin.Request) (macs []string) {
	if r.PrevResult == nil {
		return nil
	}
	for _, f := range r.PrevResult.Interfaces {
		if f.Name != r.IfName || f.Sandbox == "" {
			continue
		}
		if mac, err := link.ParseMAC(f.Mac); err == nil {
			macs = append(macs, mac.String())
		}
	}
	return macs
}
