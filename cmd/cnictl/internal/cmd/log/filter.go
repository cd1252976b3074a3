package log

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Filter says which calls are wanted. They must be shown to it in their order.
type Filter struct {
	// Name is a container id or its beginning, a pod, an interface's name, a MAC or an IP address; "" is all.
	Name string

	Since, Until time.Time // zero is no bound
	Verb         string
	Network      string
	Errors       bool // only calls that failed

	found map[plugin.Key]bool // whose ADD has what Name is in its result
}

// Address returns the IP address that Name is, if it is one.
func (f *Filter) Address() (netip.Addr, bool) {
	a, err := netip.ParseAddr(f.Name)
	return a, err == nil
}

// Apply returns those of some calls that are wanted.
func (f *Filter) Apply(list []calllog.Call) []calllog.Call {
	return slices.DeleteFunc(list, func(c calllog.Call) bool { return !f.wants(&c) })
}

func (f *Filter) wants(c *calllog.Call) bool {
	return f.isNamed(c) && // first, as it has to see all
		f.overlaps(c.Time, c.Time) &&
		(f.Verb == "" || strings.EqualFold(c.Verb, f.Verb)) &&
		(f.Network == "" || c.Network == f.Network) &&
		(!f.Errors || c.Error != nil)
}

func (f *Filter) isNamed(c *calllog.Call) bool {
	if f.Name == "" {
		return true
	}
	address, isAddress := f.Address()
	has := func(i calllog.Interface) bool { return i.Name == f.Name || strings.EqualFold(i.MAC, f.Name) }
	if isAddress && c.Got(address) || slices.ContainsFunc(c.Interfaces, has) {
		if f.found == nil {
			f.found = map[plugin.Key]bool{}
		}
		f.found[c.Key] = true
	}
	return f.found[c.Key] || strings.HasPrefix(c.ContainerID, f.Name) || c.IfName == f.Name || c.Pod == f.Name || strings.HasSuffix(c.Pod, "/"+f.Name)
}

// Holders returns which attachments had the address that Name is.
func (f *Filter) Holders(list []calllog.Call) []*calllog.Holder {
	address, _ := f.Address()
	return slices.DeleteFunc(calllog.Holders(list, address), func(h *calllog.Holder) bool {
		return f.Network != "" && h.Network != f.Network || !f.overlaps(h.From, h.To)
	})
}

// overlaps reports whether what began and ended at some times was ever in the time that is wanted. Zero is no end.
func (f *Filter) overlaps(from, to time.Time) bool {
	return (f.Until.IsZero() || !from.After(f.Until)) && (f.Since.IsZero() || to.IsZero() || !to.Before(f.Since))
}

// ParseTime reads a time as people write it: "2h" ago, "2006-01-02", "2006-01-02 15:04" or with seconds, in the time zone of now, or RFC 3339.
func ParseTime(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	for _, form := range []string{time.DateTime, "2006-01-02 15:04", time.DateOnly, time.RFC3339} {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf(`%q is no time: write 2h (ago), "%s" or %s`, text, now.Format("2006-01-02 15:04"), now.UTC().Format(time.RFC3339))
}
