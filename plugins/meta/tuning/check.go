package tuning

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
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
	i, err := openInterface(r, s)
	if err != nil {
		return err
	}
	defer i.close()
	different, err := differentSysctls(r.NS(), s.sysctls)
	if err != nil {
		return err
	}
	if i != nil {
		different = append(different, differentAttributes(i.link, s.attributes)...)
	}
	if different != nil {
		return plugin.Errorf("something changed it since ADD, or the configuration was changed: attach the container again", "%s in %s: %s", r.IfName, r.Netns, strings.Join(different, "; "))
	}
	return nil
}

// differentSysctls says which sysctls in ns do not have the wanted values.
func differentSysctls(ns *netns.NS, wanted []setting) (different []string, err error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	tree, err := sysctl.OpenIn(ns)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	for _, want := range wanted {
		have, err := tree.GetKey(want.key)
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

// differentAttributes says which attributes of the link are not the wanted ones.
func differentAttributes(l *link.Link, wanted attributes) (different []string) {
	have := attributesOf(l, wanted).list()
	for i, want := range wanted.list() {
		if have[i].value != want.value {
			different = append(different, fmt.Sprintf("%s is %s, not %s", want.name, have[i].value, want.value))
		}
	}
	return different
}
