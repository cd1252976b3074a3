// Package tuning changes the interface that a plugin before it in the chain
// made, and sysctls of its network namespace.
package tuning

import (
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

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
	i, err := openInterface(r, s)
	if err != nil {
		return nil, err
	}
	defer i.close()

	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	if err := setSysctls(ctx, r, s.sysctls, &undo); err != nil {
		return nil, err
	}
	if err := setAttributes(ctx, r, i, s, &undo); err != nil {
		return nil, err
	}
	return s.result(r), nil
}

func noPrevResult() error {
	return plugin.ConfigError("tuning changes what a plugin before it in the chain made: list it behind one that makes an interface",
		"Required prevResult missing")
}

// setAttributes records the attributes that the interface has and sets the
// wanted ones.
func setAttributes(ctx context.Context, r *plugin.Request, i *iface, s *settings, undo *plugin.Undo) error {
	if i == nil {
		return nil
	}
	previous := attributesOf(i.link, s.attributes)
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
		if err := i.set(a); err != nil {
			return attributeError(fmt.Sprintf("correct %q in tuning's configuration or arguments: the link does not take that value", a.name), r, a, err)
		}
		undo.Push("set "+a.name+" back", func(context.Context) error { return i.set(before[n]) })
	}
	return nil
}

// Status tells whether the configuration can be used and sysctls can be set.
func (Plugin) Status(_ context.Context, r *plugin.Request) error {
	s, err := readSettings(r)
	if err != nil {
		return err
	}
	if len(s.sysctls) == 0 {
		return nil
	}
	if err := checkAllowlist(s.sysctls); err != nil {
		return err
	}
	if err := sysctl.Writable(); err != nil {
		return &types.Error{Code: types.ErrPluginNotAvailable, Msg: err.Error(), Details: "the configuration sets sysctls: give the runtime a writable /proc/sys"}
	}
	return nil
}
