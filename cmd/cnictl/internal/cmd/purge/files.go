package purge

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/pkg/sysctl"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/notes"
	"github.com/cnibox/cnibox/plugins/known"
)

// emptied returns the directories that are removed if nothing is in them then, each after those in it.
func emptied() []string {
	dirs := []string{libcni.CacheDir + "/results"}
	for _, row := range known.Plugins {
		dirs = append(dirs, row.Facts(nil).Dirs...)
	}
	return append(dirs, "/run/cni")
}

// directory is one that goes with all that is in it.
type directory string

// Remove removes it.
func (d directory) Remove(context.Context) error { return os.RemoveAll(string(d)) }

// emptyDirectory is one that goes if it is empty.
type emptyDirectory string

// Remove removes it.
func (d emptyDirectory) Remove(context.Context) error {
	err := os.Remove(string(d))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || isNotEmpty(string(d)) {
		return nil
	}
	return err
}

func isNotEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}

// notesDir is where a network's notes are of what this host has in etcd.
type notesDir string

// Remove removes it, unless something is held or etcd does not know yet that it is not.
func (d notesDir) Remove(context.Context) error {
	for _, of := range []string{"held", "open"} {
		if dir := filepath.Join(string(d), of); isNotEmpty(dir) {
			return plugin.CodeErrorf(types.ErrTryAgainLater, "repeat this when etcd answers: `cnictl leases keep`", "%s is not empty", dir)
		}
	}
	return os.RemoveAll(string(d))
}

// leaseDir is where a network keeps its leases.
type leaseDir string

// Remove removes what host-local keeps besides leases, and the directory if nothing else is in it.
func (d leaseDir) Remove(ctx context.Context) error {
	others, err := d.others()
	if err != nil {
		return err
	}
	if len(others) > 0 {
		return plugin.CodeErrorf(types.ErrTryAgainLater, "repeat this", "it has got %s", strings.Join(others, ", "))
	}
	return os.RemoveAll(string(d))
}

// others returns the names of the files that are not host-local's own.
func (d leaseDir) others() (names []string, err error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.Name() != "lock" && !strings.HasPrefix(e.Name(), "last_reserved_ip.") {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// addFiles finds what is kept in files. Leases that gc removes are not in the way.
func (p *Plan) addFiles(n *node.Node, r *collect.Report) {
	going := map[string]bool{}
	for _, it := range r.Goes {
		for _, t := range it.Held {
			if a, ok := t.Address(); ok {
				going[t.Network+"/"+a.String()] = true
			}
		}
	}
	var dirs []string
	for _, s := range n.Stores {
		if d, ok := s.(lease.Dir); ok && !slices.Contains(dirs, string(d)) {
			dirs = append(dirs, string(d))
		}
	}
	for _, dir := range dirs {
		p.addLeases(dir, going)
	}
	networks, _ := filepath.Glob(notes.DefaultDir + "/*")
	for _, dir := range networks {
		p.Goes = append(p.Goes, Item{What: "directory " + dir, remover: notesDir(dir)})
	}
	for _, dir := range emptied() {
		if _, err := os.Lstat(dir); err == nil {
			p.Goes = append(p.Goes, Item{What: "directory " + dir + ", if it is empty", remover: emptyDirectory(dir)})
		}
	}
	own := state.RunDir() // ours as a whole: locks, records of rules and devices, what is known of processes
	if _, err := os.Lstat(own); err == nil {
		p.Goes = append(p.Goes, Item{What: "directory " + own, remover: directory(own)})
	}
	number := notes.Dir{Path: filepath.Join(notes.DefaultDir, "any")}.NumberFile()
	if _, err := os.Lstat(number); err == nil {
		p.stay(number, "etcd knows this host by it, and takes it for another machine without; if it joins no network in etcd any more: rm "+number)
	}
	for _, row := range known.Plugins {
		if d := row.Facts(nil).Daemon; d != nil {
			if _, err := os.Lstat(d.Socket); err == nil {
				service := strings.TrimSuffix(d.Unit, ".socket") + ".service"
				p.stay(d.Socket, "the DHCP daemon has it: stop that, such as with systemctl disable --now "+d.Unit+" "+service)
			}
		}
	}
}

// addLeases decides about the networks of a directory, and the index beside them.
func (p *Plan) addLeases(dir string, going map[string]bool) {
	entries, _ := os.ReadDir(dir) // what can't be read gc has said
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !e.IsDir() {
			continue
		}
		if e.Name() == ".cnibox" {
			p.Goes = append(p.Goes, Item{What: "directory " + path, remover: directory(path)})
			continue
		}
		others, err := leaseDir(path).others()
		others = slices.DeleteFunc(others, func(name string) bool { return going[e.Name()+"/"+name] })
		isLease := func(name string) bool { _, err := netip.ParseAddr(name); return err == nil }
		switch {
		case err != nil:
			p.stay("directory "+path, err.Error())
		case slices.ContainsFunc(others, isLease):
			p.stay("directory "+path, "it has leases")
		case len(others) > 0:
			p.stay("directory "+path, "it has files that are no leases: "+strings.Join(others, ", "))
		default:
			p.Goes = append(p.Goes, Item{What: "directory " + path, remover: leaseDir(path)})
		}
	}
}

// addSettings names what stays, since others may need it.
func (p *Plan) addSettings() {
	for _, key := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if value, err := sysctl.Get(key); err == nil && value != "0" {
			name := strings.ReplaceAll(key, "/", ".")
			p.stay("sysctl "+name+"="+value, "others may need it; if not: sysctl -w "+name+"=0")
		}
	}
	if _, err := os.Lstat("/var/log/cnibox"); err == nil {
		p.stay("/var/log/cnibox", "it is the log of what was done here")
	}
}
