package tuning

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Check compares the interface and the sysctls with the configuration.
func (Plugin) Check(ctx context.Context, r *plugin.Request) error {
	s, err := readSettings(r)
	if err != nil {
		return err
	}
	if r.PrevResult == nil {
		return noPrevResult()
	}
	var different []string
	err = r.Inside(func() error {
		l, err := findInterface(&netlink.Handle{}, r, s.values)
		if err != nil {
			return err
		}
		have := valuesOf(l, s.values)
		different, err = differentSysctls(s.sysctls)
		for i, want := range s.values {
			if have[i] != want {
				different = append(different, fmt.Sprintf("%s is %s, not %s", attributes[i].name, have[i], want))
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if different != nil {
		return plugin.Errorf("something changed it since ADD, or the configuration was changed: attach the container again", "%s in %s: %s", r.IfName, r.Netns, strings.Join(different, "; "))
	}
	return nil
}

// differentSysctls says which sysctls do not have the wanted values.
func differentSysctls(wanted []setting) (different []string, err error) {
	for _, want := range wanted {
		have, err := want.key.Get()
		switch {
		case errors.Is(err, unix.EACCES): // it can only be written to
		case err != nil:
			return nil, sysctlError(err)
		case !sameValue(have, want.value):
			different = append(different, fmt.Sprintf("sysctl %s is %q, not %q", want.key, have, want.value))
		}
	}
	return different, nil
}

// sameValue compares values without regard to the white space between several
// numbers: the kernel shows tabs, people write spaces.
func sameValue(a, b string) bool {
	return strings.Join(strings.Fields(a), " ") == strings.Join(strings.Fields(b), " ")
}
