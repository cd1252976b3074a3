// Package tuning changes the interface that a plugin before it in the chain made, and sysctls of its network namespace.
package tuning

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// Plugin is the tuning plugin.
type Plugin struct{}

// Add sets the sysctls and then the interface's attributes, whose values before it leaves in a file for DEL.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (result *types100.Result, err error) {
	s, err := readSettings(r)
	if err != nil {
		return nil, err
	}
	if err := checkAllowlist(s.sysctls); err != nil {
		return nil, err
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

// setSysctls sets them in the order of the configuration.
func setSysctls(ctx context.Context, r *plugin.Request, sysctls []setting, undo *plugin.Undo) error {
	for _, s := range sysctls {
		if err := r.Step(ctx, "set sysctl "+s.key.String()+" to "+strconv.Quote(s.value)); err != nil {
			return err
		}
		// A sysctl that can't be read, such as net.ipv4.route.flush, does something instead of holding a value.
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
	return plugin.Errorf(e.Remedy(), "%w", err)
}

// setValues records the attributes that the interface has and sets the wanted ones.
func setValues(ctx context.Context, r *plugin.Request, links *netlink.Handle, l netlink.Link, wanted values, undo *plugin.Undo) error {
	previous, file := valuesOf(l, wanted), backupFile(r)
	if err := r.Step(ctx, "record previous attributes in "+string(file)); err != nil {
		return err
	}
	unrecord, err := file.record(backup{previous, r.Key})
	if err != nil {
		return err
	}
	undo.Push("put "+string(file)+" back", func(context.Context) error { return unrecord() })

	for i, name := range names {
		if wanted[i] == "" {
			continue
		}
		if err := r.Step(ctx, "set "+name+" of "+r.IfName+" to "+wanted[i]); err != nil {
			return err
		}
		if err := set(links, l, i, wanted[i]); err != nil {
			return attributeError(fmt.Sprintf("correct %q in tuning's configuration or arguments: the link does not take that value", name), r, name, wanted[i], err)
		}
		undo.Push("set "+name+" back", func(context.Context) error {
			return r.Inside(func() error { return set(links, l, i, previous[i]) })
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
			return plugin.CodeErrorf(types.ErrPluginNotAvailable, "the configuration sets sysctls: give the runtime a writable /proc/sys", "%w", err)
		}
	}
	if s.values != (values{}) {
		if err := state.Writable(dataDir(r.Config)); err != nil {
			return plugin.CodeErrorf(types.ErrPluginNotAvailable, "make that directory writable and make sure its disk is not full, or set dataDir to another one",
				"previous attributes can't be recorded: %w", err)
		}
	}
	return nil
}

// Mend looks at the interface and the sysctls. ADD alone records what the interface had before.
func (Plugin) Mend(_ context.Context, r *plugin.Request, m *plugin.Mender) error {
	if r.HostSide {
		return nil
	}
	s, err := readSettings(r)
	if err != nil {
		return err
	}
	return r.Inside(func() error {
		links := &netlink.Handle{}
		l, err := findInterface(links, r, s.values)
		if err != nil {
			return err
		}
		for i := range s.sysctls {
			mendSysctl(r, s.sysctls[i:i+1], m)
		}
		have := valuesOf(l, s.values)
		for i, want := range s.values {
			if have[i] == want {
				continue
			}
			m.Mend(different(r, "%s is %s, not %s", names[i], have[i], want), "set "+names[i]+" of "+r.IfName+" to "+want, func() error {
				if err := set(links, l, i, want); err != nil {
					return attributeError("", r, names[i], want, err)
				}
				return nil
			})
		}
		return nil
	})
}

// mendSysctl looks at one.
func mendSysctl(r *plugin.Request, one []setting, m *plugin.Mender) {
	want := one[0]
	have, err := want.key.Get()
	switch {
	case errors.Is(err, unix.EACCES): // it can only be written to
	case err != nil:
		m.Fail(sysctlError(err))
	case !sameValue(have, want.value):
		m.Mend(different(r, "sysctl %s is %q, not %q", want.key, have, want.value), "", func() error {
			if err := checkAllowlist(one); err != nil {
				return err
			}
			r.Announce("set sysctl " + want.key.String() + " to " + strconv.Quote(want.value))
			return sysctlError(want.key.Set(want.value))
		})
	}
}

func different(r *plugin.Request, format string, args ...any) error {
	return plugin.Errorf("something changed it since ADD: "+plugin.RepairRemedy, "%s in %s: %s", r.IfName, r.Netns, fmt.Sprintf(format, args...))
}

// sameValue compares values without regard to the white space between several numbers: the kernel shows tabs, people write spaces.
func sameValue(a, b string) bool {
	return strings.Join(strings.Fields(a), " ") == strings.Join(strings.Fields(b), " ")
}

// Del gives the interface the attributes that Add recorded, as far as the container lets it, and removes the record. Sysctls go with the
// namespace.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	file := backupFile(r)
	text, _, err := file.read()
	if err != nil {
		return err
	}
	if recorded, _ := parseBackup(text); recorded.values != (values{}) && r.NS() != nil {
		links, err := r.LinksInside()
		if err != nil {
			return err
		}
		r.WarnOf(restore(r, links, recorded.values))
	}
	return file.remove()
}

// restore sets the recorded attributes. It tries all of them.
func restore(r *plugin.Request, links *netlink.Handle, recorded values) error {
	l, err := links.LinkByName(r.IfName)
	if err != nil || isOther(l, r, recorded) {
		return link.IgnoreNotFound(err)
	}
	var errs []error
	for i, name := range names {
		if recorded[i] == "" {
			continue
		}
		r.Announce("set " + name + " of " + r.IfName + " back to " + recorded[i])
		if err := set(links, l, i, recorded[i]); err != nil && !link.IsNotFound(err) {
			errs = append(errs, attributeError("", r, name, recorded[i], err))
		}
	}
	return errors.Join(errs...)
}

// Stores returns what is recorded for DEL.
func (Plugin) Stores(r *plugin.Request) []plugin.Store {
	return []plugin.Store{backups(dataDir(r.Config))}
}

// isOther reports whether the link is not the attachment's: the path of its namespace can have been given to another container since.
func isOther(l netlink.Link, r *plugin.Request, recorded values) bool {
	wanted, _ := wantedValues(r)
	return !attach.IsOwn(r, l, wanted[mac], recorded[mac])
}

// allowlistFile names the sysctls that may be set, where the administrator of a node does not write its configurations. Without the file
// all may be.
const allowlistFile = "/etc/cni/tuning/allowlist.conf"

// checkAllowlist returns an error unless each sysctl, as it is written in the configuration, matches the pattern on a line of the
// allowlist.
func checkAllowlist(sysctls []setting) error {
	if len(sysctls) == 0 {
		return nil
	}
	text, err := state.Read(allowlistFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return plugin.CodeErrorf(types.ErrIOFailure, "make the file readable, or remove it to allow all sysctls", "%w", err)
	}
	var patterns []*regexp.Regexp
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		p, err := regexp.Compile(line)
		if err != nil {
			return plugin.ConfigError("write one regular expression of Go's syntax on each line", "%s: %w", allowlistFile, err)
		}
		patterns = append(patterns, p)
	}
	for _, s := range sysctls {
		if !slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(s.key.String()) }) {
			return plugin.ConfigError("remove it from the configuration, or add a line that matches it to "+allowlistFile,
				"Sysctl %s is not allowed. Only the following sysctls are allowed: %v", s.key, patterns)
		}
	}
	return nil
}
