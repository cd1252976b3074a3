// Package tuning changes the interface that a plugin before it in the chain
// made, and sysctls of its network namespace.
package tuning

import (
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
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
		l, err := findInterface(r, s)
		if err != nil {
			return err
		}
		if err := setSysctls(ctx, r, s.sysctls, &undo); err != nil || l == nil {
			return err
		}
		return setAttributes(ctx, r, l, s, &undo)
	})
}

func noPrevResult() error {
	return plugin.ConfigError("tuning changes what a plugin before it in the chain made: list it behind one that makes an interface",
		"Required prevResult missing")
}

// setAttributes records the attributes that the interface has and sets the
// wanted ones.
func setAttributes(ctx context.Context, r *plugin.Request, l netlink.Link, s *settings, undo *plugin.Undo) error {
	previous := attributesOf(l, s.attributes)
	b := newBackup(s.dataDir, r.Key)
	if err := r.Step(ctx, "record previous attributes in "+b.path); err != nil {
		return err
	}
	unrecord, err := b.record(previous)
	if err != nil {
		return err
	}
	undo.Push("put "+b.path+" back", func(context.Context) error { return unrecord() })

	before := previous.list()
	for n, a := range s.attributes.list() {
		if err := r.Step(ctx, "set "+a.name+" of "+r.IfName+" to "+a.value); err != nil {
			return err
		}
		if err := a.set(l); err != nil {
			return attributeError(fmt.Sprintf("correct %q in tuning's configuration or arguments: the link does not take that value", a.name), r, a, err)
		}
		undo.Push("set "+a.name+" back", func(context.Context) error {
			return r.Inside(func() error { return before[n].set(l) })
		})
	}
	return nil
}

// Status tells whether the configuration can be used and sysctls can be set.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	s, err := readSettings(r)
	if err == nil {
		err = netns.CheckEntry()
	}
	if err != nil || len(s.sysctls) == 0 {
		return err
	}
	if err := checkAllowlist(s.sysctls); err != nil {
		return err
	}
	if err := sysctl.Writable(); err != nil {
		return &types.Error{Code: types.ErrPluginNotAvailable, Msg: err.Error(), Details: "the configuration sets sysctls: give the runtime a writable /proc/sys"}
	}
	return nil
}
