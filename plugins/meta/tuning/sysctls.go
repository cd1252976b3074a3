package tuning

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// setSysctls sets them in the order of the configuration.
func setSysctls(ctx context.Context, r *plugin.Request, sysctls []setting, undo *plugin.Undo) error {
	if len(sysctls) == 0 {
		return nil
	}
	tree, err := sysctl.OpenIn(r.NS())
	if err != nil {
		return err
	}
	defer tree.Close()
	for _, s := range sysctls {
		if err := r.Step(ctx, "set sysctl "+s.key.String()+" to "+strconv.Quote(s.value)); err != nil {
			return err
		}
		// What can't be read, such as net.ipv4.route.flush, does
		// something instead of holding a value.
		if previous, err := tree.GetKey(s.key); err == nil {
			undo.Push("set sysctl "+s.key.String()+" back", func(context.Context) error {
				return setBack(r.NS(), s.key, previous)
			})
		}
		if err := tree.SetKey(s.key, s.value); err != nil {
			return sysctlError(err)
		}
	}
	return nil
}

func setBack(ns *netns.NS, key sysctl.Key, previous string) error {
	tree, err := sysctl.OpenIn(ns)
	if err != nil {
		return err
	}
	defer tree.Close()
	return tree.SetKey(key, previous)
}

// sysctlError adds what can be done about it.
func sysctlError(err error) error {
	var e *sysctl.Error
	if !errors.As(err, &e) {
		return err
	}
	return plugin.Errorf(fmt.Sprintf("%s", e.Remedy()), "%v", err)
}
