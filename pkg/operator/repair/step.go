package repair

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/request"
)

// step is one plugin of an attachment's list, with what a runtime would ask of it by CHECK.
type step struct {
	name    string
	plugin  plugin.Plugin
	borrows bool // its link: contivk8s, whose is that of the attachment that the agent has made
	request *plugin.Request
}

func (a *attempt) resultsDir() string { return filepath.Dir(a.Result.Path) }

// Why an attachment is not looked at: its namespace has ended; it is not the one that was found; libcni has no result; or it is nobody's business
// here.
var (
	errEnded    = errors.New("its network namespace has just gone")
	errDeleted  = errors.New("it was deleted meanwhile")
	errNoResult = errors.New("libcni has no result of it that can be read")
	errUnasked  = errors.New("it is left alone")
)

func unasked(why string) error { return fmt.Errorf("%s: %w", why, errUnasked) }

// begin returns the attachment's plugins, one at least, if they can be asked about it. Their requests share what has to be closed.
func (a *attempt) begin() ([]*step, error) {
	switch {
	case a.Result == nil || a.Result.Result == nil:
		return nil, errNoResult
	case a.State != node.Alive || a.Namespace == nil:
		return nil, errors.New(a.Why)
	}
	pair, err := a.open()
	if err != nil {
		return nil, err
	}
	steps, err := a.steps(&plugin.Request{
		Command: plugin.Check, Key: a.Key(), Netns: a.Netns, Pair: pair, Args: a.arguments(), Path: a.Path,
		Results: a.resultsDir(), Plugins: a.Options.Plugins, InProcess: true, HostSide: !a.inside, Filter: a.filter,
	})
	if err == nil && len(steps) == 0 {
		err = unasked("none of its plugins is cnibox's")
	}
	if err != nil {
		pair.Close()
	}
	return steps, err
}

// checkThere makes sure that what is in the namespace is the attachment still.
func (a *attempt) checkThere(steps []*step) error {
	return attach.CheckLost(steps[0].request, steps[0].borrows)
}

// open opens the attachment's namespace, wherever it can be found by now.
func (a *attempt) open() (*netns.Pair, error) {
	pair := netns.NewPair(a.Namespace.Path(), false)
	if err := pair.Err(); err != nil {
		return nil, err
	}
	var file unix.Stat_t
	if err := unix.Fstat(int(pair.NS().Fd()), &file); err != nil || file.Ino != a.Namespace.Inode {
		pair.Close()
		return nil, errEnded
	}
	return pair, nil
}

func (a *attempt) arguments() string {
	var pairs []string
	for _, p := range a.Result.CniArgs {
		pairs = append(pairs, p[0]+"="+p[1])
	}
	return strings.Join(pairs, ";")
}

// steps returns our plugins of the configuration that ADD had, and notes the others.
func (a *attempt) steps(base *plugin.Request) (steps []*step, err error) {
	l, err := netconf.Parse("", a.Result.Config, a.Options.Plugins.Find)
	if err != nil {
		return nil, fmt.Errorf("the configuration in %s is %w", a.Result.Path, err)
	}
	config, version := l.Config, l.CNIVersion
	if !plugin.AtLeast(version, "0.3.0") {
		return nil, fmt.Errorf("its network has the cniVersion %q, in which results name no interfaces", version)
	}
	if first := "0.4.0"; !plugin.AtLeast(version, first) { // CHECK came with it; results of 0.3 have the same form
		version = first
	}
	config.Set("cniVersion", version)
	if l.IsSet("disableCheck") {
		return nil, unasked("its network has disableCheck")
	}
	a.rights = rightsOf(a.Attachment, config)
	wanted := conf.New()
	if text, err := json.Marshal(a.Result.CapabilityArgs); err == nil && a.Result.CapabilityArgs != nil {
		if wanted, err = conf.Parse(text); err != nil {
			return nil, fmt.Errorf("the capability arguments in %s are %w", a.Result.Path, err)
		}
	}
	a.report.Foreign = nil
	for _, p := range l.Plugins {
		if p.Row == nil || a.isForeign(p.Named) {
			a.report.Foreign = append(a.report.Foreign, p.Named)
			continue
		}
		own := *base
		if err := request.Configure(&own, request.Compose(p.Config, config, wanted, a.Result.Result, version), *p.Row); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Named, err)
		}
		steps = append(steps, &step{p.Named, p.Row.Plugin, p.Row.Borrows, &own})
	}
	return steps, nil
}
