package tuning

import (
	"context"
	"errors"
	"strconv"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// setSysctls sets them in the order of the configuration.
func setSysctls(ctx context.Context, r *plugin.Request, sysctls []setting, undo *plugin.Undo) error {
	for _, s := range sysctls {
		if err := r.Step(ctx, "set sysctl "+s.key.String()+" to "+strconv.Quote(s.value)); err != nil {
			return err
		}
		// What can't be read, such as net.ipv4.route.flush, does
		// something instead of holding a value.
		if previous, err := s.key.Get(); err == nil {
			undo.Push("set sysctl "+s.key.String()+" back", func(context.Context) error {
				return r.Inside(func() error { return s.key.Set(previous) })
			})
		}
		if err := s.key.Set(s.value); err != nil {
			return sysctlError(err)
		}
	}
	return nil
}

// sysctlError adds what can be done about it.
func sysctlError(err error) error {
	var e *sysctl.Error
	if !errors.As(err, &e) {
		return err
	}
	return plugin.Errorf(e.Remedy(), "%v", err)
}
