package doctor

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/runtimes"
)

// subject is what the checks look at.
type subject struct {
	Options
	*node.Node
	networks  []*network // as the next ADD finds them
	made      []*network // as the ADDs of those who are alive found them
	runtimes  []runtimes.Runtime
	processes []node.Process
	routes    []netlink.Route // of the main table
	uplinks   []*node.Link    // by default routes
	filter    ruleset

	found     []Finding // by the checks before
	notLooked []NotLooked
}

func newSubject(ctx context.Context, o Options) *subject {
	s := &subject{Options: o, Node: o.Node}
	if s.Node == nil {
		s.Node = node.Read(ctx, o.Options)
	}
	var err error
	s.processes, err = s.Processes()
	s.couldNot("processes", err)
	s.runtimes, err = runtimes.Here(runtimes.Options{Processes: s.processes, ConfDir: s.confDir()})
	s.couldNot("configurations of runtimes", err)
	s.filter, err = readRuleset()
	s.couldNot("rules of the packet filter", err)
	s.routes, err = s.Routes()
	s.routes = slices.DeleteFunc(slices.Clone(s.routes), func(r netlink.Route) bool { return r.Table != unix.RT_TABLE_MAIN })
	s.couldNot("routes of the host", err)
	s.uplinks, _ = s.Uplinks() // the error is that of the routes
	s.networks, s.made = s.readNetworks(), s.readMade()
	for _, u := range s.Unread {
		if !s.hasOwnCode(u) {
			s.couldNot(u.What, errors.New(u.Why))
		}
	}
	return s
}

// couldNot notes what could not be looked at, if there is an error.
func (s *subject) couldNot(what string, err error) {
	if err != nil {
		s.notLooked = append(s.notLooked, NotLooked{what, err.Error()})
	}
}

// hasOwnCode reports whether a file that can't be read is one that a check has a code for.
func (s *subject) hasOwnCode(u node.Unread) bool {
	return filepath.Dir(u.What) == filepath.Clean(s.confDir()) || isResult(u.What)
}

func (s *subject) confDir() string { return cmp.Or(s.ConfDir, node.DefaultConfDir) }

// cacheDir returns where the results are of the runtime that was asked about.
func (s *subject) cacheDir() string {
	if len(s.CacheDirs) > 0 {
		return s.CacheDirs[0]
	}
	return libcni.CacheDir
}

// hasError reports whether something was found so far that keeps a network, or all, from working.
func (s *subject) hasError(network string) bool {
	return slices.ContainsFunc(s.found, func(f Finding) bool {
		return f.Severity == finding.Error && (f.Network == network || f.Network == "")
	})
}
