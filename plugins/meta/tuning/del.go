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
	file := backupFile(r)
	text, _, err := file.read()
	if err != nil {
		return err
	}
	recorded, _ := parseBackup(text)
	if err := restore(ctx, r, recorded.values); err != nil {
		failed := plugin.AsError(err)
		return types.NewError(failed.Code, failed.Msg, "set it by hand, or remove the file "+string(file)+" if it does not matter: the next DEL then succeeds")
	}
	return file.remove()
}

// restore sets the recorded attributes. It tries all of them.
func restore(ctx context.Context, r *plugin.Request, recorded values) error {
	if recorded == (values{}) || r.NS() == nil {
		return nil
	}
	return r.Inside(func() error {
		links := &netlink.Handle{}
		l, err := links.LinkByName(r.IfName)
		if link.IsNotFound(err) {
			return nil
		}
		if err != nil || isOther(l, r, recorded) {
			return err
		}
		var failed []string
		for i, a := range attributes {
			if recorded[i] == "" {
				continue
			}
			if err := r.Step(ctx, "set "+a.name+" of "+r.IfName+" back to "+recorded[i]); err != nil {
				return err
			}
			if err := a.set(links, l, recorded[i]); err != nil && !link.IsNotFound(err) {
				failed = append(failed, attributeError("", r, a.name, recorded[i], err).Error())
			}
		}
		if failed != nil {
			return plugin.Errorf("", "%s", strings.Join(failed, "; "))
		}
		return nil
	})
}

// isOther reports whether the link is not the attachment's: the path of its
// namespace can have been given to another container since. The attachment's
// has one of the MAC addresses that it is known to have had.
func isOther(l netlink.Link, r *plugin.Request, recorded values) bool {
	if r.PrevResult == nil {
		return false
	}
	wanted, _ := wantedValues(r)
	known, reported := []string{wanted[mac], recorded[mac]}, false
	for _, f := range r.PrevResult.Interfaces {
		address, err := link.ParseMAC(f.Mac)
		if f.Name == r.IfName && f.Sandbox != "" && err == nil {
			known, reported = append(known, address.String()), true
		}
	}
	return reported && !slices.Contains(known, l.Attrs().HardwareAddr.String())
}
