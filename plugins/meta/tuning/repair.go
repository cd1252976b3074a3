package tuning

import (
	"context"
	"errors"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Repair implements plugin.Repairer. What the interface had before ADD is recorded by ADD alone.
func (Plugin) Repair(_ context.Context, r *plugin.Request) error {
	s, err := readSettings(r)
	if err == nil {
		err = checkAllowlist(s.sysctls)
	}
	if err != nil {
		return err
	}
	return r.Inside(func() error {
		links := &netlink.Handle{}
		l, err := findInterface(links, r, s.values)
		if err != nil {
			return err
		}
		errs := []error{repairSysctls(r, s.sysctls)}
		for i, want := range s.values {
			if l == nil || want == "" || valueOf(l.Attrs(), i) == want {
				continue
			}
			r.Announce("set " + names[i] + " of " + r.IfName + " to " + want)
			if err := set(links, l, i, want); err != nil {
				errs = append(errs, attributeError("", r, names[i], want, err))
			}
		}
		return errors.Join(errs...)
	})
}

func repairSysctls(r *plugin.Request, wanted []setting) error {
	var errs []error
	for _, want := range wanted {
		if have, err := want.key.Get(); err != nil || sameValue(have, want.value) {
			continue
		}
		r.Announce("set sysctl " + want.key.String() + " to " + strconv.Quote(want.value))
		errs = append(errs, sysctlError(want.key.Set(want.value)))
	}
	return errors.Join(errs...)
}
