// Package tuning changes the interface that a plugin before it in the chain
// made, and sysctls of its network namespace.
package tuning

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// Plugin is the tuning plugin.
type Plugin struct{}

// Add sets the sysctls and then the interface's attributes, whose values
// before it leaves in a file for DEL.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (result *types100.Result, err error) {
	s, err := readSettings(r)
	if err != nil {
		return nil, err
	}
	if err := checkAllowlist(s.sysctls); err != nil {
		return nil, err
	}
	if r.PrevResult == nil {
		return nil, noPrevResult()
	}
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	return s.result(r), r.Inside(func() error {
		links := &netlink.Handle{}
		l, err := findInterface(links, r, s.values)
		if err != nil {
			return err
		}
		if err := setSysctls(ctx, r, s.sysctls, &undo); err != nil || l == nil {
			return err
		}
		return setValues(ctx, r, links, l, s.values, &undo)
	})
}

func noPrevResult() error {
	return plugin.ConfigError("tuning changes what a plugin before it in the chain made: list it behind one that makes an interface",
		"Required prevResult missing")
}

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

// setValues records the attributes that the interface has and sets the wanted ones.
func setValues(ctx context.Context, r *plugin.Request, links *netlink.Handle, l netlink.Link, wanted values, undo *plugin.Undo) error {
	previous, file := valuesOf(l, wanted), backupFile(r)
	if err := r.Step(ctx, "record previous attributes in "+string(file)); err != nil {
		return err
	}
	unrecord, err := file.record(backup{previous, r.Network})
	if err != nil {
		return err
	}
	undo.Push("put "+string(file)+" back", func(context.Context) error { return unrecord() })

	for i, a := range attributes {
		if wanted[i] == "" {
			continue
		}
		if err := r.Step(ctx, "set "+a.name+" of "+r.IfName+" to "+wanted[i]); err != nil {
			return err
		}
		if err := a.set(links, l, wanted[i]); err != nil {
			return attributeError(fmt.Sprintf("correct %q in tuning's configuration or arguments: the link does not take that value", a.name), r, a.name, wanted[i], err)
		}
		undo.Push("set "+a.name+" back", func(context.Context) error {
			return r.Inside(func() error { return a.set(links, l, previous[i]) })
		})
	}
	return nil
}

// Status reports whether the configuration can be used, sysctls can be set, and attributes recorded.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	s, err := readSettings(r)
	if err == nil {
		err = netns.CheckEntry()
	}
	if err == nil {
		err = checkAllowlist(s.sysctls)
	}
	if err != nil {
		return err
	}
	if len(s.sysctls) > 0 {
		if err := sysctl.Writable(); err != nil {
			return types.NewError(types.ErrPluginNotAvailable, err.Error(), "the configuration sets sysctls: give the runtime a writable /proc/sys")
		}
	}
	if s.values != (values{}) {
		if err := state.Writable(dataDir(r.Config)); err != nil {
			return types.NewError(types.ErrPluginNotAvailable, "previous attributes can't be recorded: "+err.Error(),
				"make that directory writable and make sure its disk is not full, or set dataDir to another one")
		}
	}
	return nil
}
