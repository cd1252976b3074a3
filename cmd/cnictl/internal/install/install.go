// Package install puts cnibox and the links to it into a directory of CNI
// plugins, and takes them away again.
//
// Nothing in the directory is ever written in place: every file is made aside
// and renamed over its name, so a runtime that executes plugins meanwhile finds
// each name at any moment, old or new. An installation that fails puts back
// what it had already renamed.
//
// What else there is in the directory belongs to cnibox:
//
//	.cnibox.json         the names that install has made (manifest)
//	.cnibox-replaced/    the files of others that they took the place of
//	.cnibox-staging-*/   only while install runs
package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Binary is the name of the multicall binary.
const Binary = "cnibox"

// Link is how a plugin's name leads to cnibox.
type Link string

// The ways to link.
const (
	Symbolic Link = "sym"  // relative: bridge -> cnibox
	Hard     Link = "hard" // another name of the same file
	Copy     Link = "copy" // a file of its own
)

// Links are all ways to link, the default first.
var Links = []Link{Symbolic, Hard, Copy}

// writtenByOthers are the plugins that other installers write with `cp -f` or
// the like, which truncates and writes the file that a link leads to. Where
// cnibox can't be made immutable these names are copies, so that nothing but
// themselves can be overwritten through them.
//
// flannel: the kube-flannel DaemonSet runs `cp -f /flannel /opt/cni/bin/flannel`
// each time a node or the pod starts.
var writtenByOthers = []string{"flannel"}

// Options are what to install and where.
type Options struct {
	Dir   string   // made if it does not exist
	From  string   // the cnibox to install
	Names []string // the plugins to link
	Link  Link
	Force bool // replace files that are not cnibox's, and keep them for Uninstall
}

// Report is what Install did.
type Report struct {
	Dir       string // without symbolic links
	Names     []string
	Unchanged bool     // all was there already
	Replaced  []string // names whose former files Uninstall brings back
	Left      []string // names that another installer has taken over since, and keeps

	// Unprotected says why cnibox could not be made immutable. It is nil when
	// it was, and when that does not go with the kind of link.
	Unprotected error
	Copied      []string // names that are copies because of Unprotected
}

// Install makes o.Dir hold cnibox and a link for each of o.Names and for each
// name of an earlier installation: it takes no plugin away. When it fails, or
// ctx ends before the first name is changed, the directory is as before.
func Install(ctx context.Context, o Options) (*Report, error) {
	if err := checkNames(o.Names); err != nil {
		return nil, err
	}
	if err := requireCnibox(o.From); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory: %w", err)
	}
	dir, err := open(o.Dir)
	if err != nil {
		return nil, err
	}
	defer dir.close()
	stage, err := dir.newStage()
	if err != nil {
		return nil, err
	}
	defer stage.remove()

	p, err := newPlan(dir, stage, o)
	if err != nil {
		return nil, err
	}
	if p.done() {
		p.report.Unchanged = true
		return p.report, nil
	}
	if err := p.stageAll(ctx); err != nil {
		return nil, err
	}
	if err := p.commit(); err != nil {
		return nil, err
	}
	return p.report, nil
}

// plan is what one installation has to do.
type plan struct {
	Options
	dir       *directory
	stage     *stage
	links     []link // what is to be there, in the end, besides cnibox itself
	replaced  []string
	manifest  manifest
	protected bool // cnibox is to be immutable
	report    *Report
}

// link is one name to be made.
type link struct {
	name string
	kind Link
}

// newPlan looks at the directory and refuses what must not be done. It changes
// nothing.
func newPlan(dir *directory, stage *stage, o Options) (*plan, error) {
	old, err := dir.readManifest()
	if err != nil {
		return nil, err
	}
	p := &plan{Options: o, dir: dir, stage: stage, report: &Report{Dir: dir.path}}
	if o.Link == Symbolic {
		p.report.Unprotected = stage.probeProtection()
		p.protected = p.report.Unprotected == nil
	}
	p.manifest.Names = union(old.Names, o.Names)
	if err := p.sort(old); err != nil {
		return nil, err
	}
	return p, nil
}

// sort decides for every name what becomes of it.
func (p *plan) sort(old manifest) error {
	var unknown []string
	for _, name := range append([]string{Binary}, p.manifest.Names...) {
		found := p.dir.identify(name)
		shared := slices.Contains(writtenByOthers, name)
		switch {
		case found.kind == unusable:
			return fmt.Errorf("%s: %w; move it away or choose another directory", filepath.Join(p.dir.path, name), found.err)
		case found.kind != foreign:
		case p.Force:
			p.replaced = append(p.replaced, name)
		case shared && slices.Contains(old.Names, name):
			p.report.Left = append(p.report.Left, name)
			continue
		default:
			unknown = append(unknown, fmt.Sprintf("%s (%s)", name, found.what))
			continue
		}
		if name != Binary {
			p.link(name, shared)
		}
	}
	p.report.Replaced = p.replaced
	if unknown != nil {
		return p.refuse(unknown)
	}
	return nil
}

func (p *plan) link(name string, shared bool) {
	kind := p.Link
	if shared && !p.protected && kind != Copy {
		kind = Copy
		p.report.Copied = append(p.report.Copied, name)
	}
	p.links = append(p.links, link{name, kind})
	p.report.Names = append(p.report.Names, name)
}

// refuse explains which files are in the way, and how to get on.
func (p *plan) refuse(unknown []string) error {
	var rest []string
	for _, l := range p.links {
		rest = append(rest, l.name)
	}
	remedy := "--force replaces them, and uninstall brings them back"
	if rest != nil && !strings.HasPrefix(unknown[0], Binary+" ") {
		remedy += "; --only " + strings.Join(rest, ",") + " leaves them alone"
	}
	return fmt.Errorf("%s has files that cnictl did not install: %s; %s", p.dir.path, strings.Join(unknown, ", "), remedy)
}

// done tells whether all is already as planned.
func (p *plan) done() bool {
	binary := p.dir.join(Binary)
	if p.replaced != nil || !sameContent(binary, p.From) || isProtected(binary) != p.protected {
		return false
	}
	old, err := p.dir.readManifest()
	if err != nil || !slices.Equal(old.Names, p.manifest.Names) {
		return false
	}
	return !slices.ContainsFunc(p.links, func(l link) bool { return !p.dir.has(l) })
}

// stageAll makes every file aside, and on the disk.
func (p *plan) stageAll(ctx context.Context) error {
	steps := []func() error{
		func() error { return p.stage.binary(p.From) },
		func() error { return p.stage.manifest(p.manifest) },
	}
	for _, l := range p.links {
		steps = append(steps, func() error { return p.stage.link(l) })
	}
	for _, name := range p.replaced {
		steps = append(steps, func() error { return p.stage.keepReplaced(name) })
	}
	steps = append(steps, p.stage.sync)
	for _, step := range steps {
		if ctx.Err() != nil {
			return fmt.Errorf("stopped before anything was changed: %w", context.Cause(ctx))
		}
		if err := step(); err != nil {
			return fmt.Errorf("prepare the installation in %s (nothing was changed): %w", p.dir.path, err)
		}
	}
	return nil
}

// commit renames what was staged. The manifest comes first: should the machine
// die on the way, uninstall knows every name, and install can be repeated.
// cnibox comes before the links to it.
func (p *plan) commit() error {
	tx := &transaction{stage: p.stage}
	err := p.change(tx)
	if err == nil {
		return nil
	}
	if undo := tx.rollback(); undo != nil {
		return fmt.Errorf("%w; and what was changed could not all be put back: %v; repair the cause and install again", err, undo)
	}
	return fmt.Errorf("%w; all is as before", err)
}

func (p *plan) change(tx *transaction) error {
	if p.replaced != nil {
		if err := tx.mkdir(p.dir.join(replacedDir)); err != nil {
			return err
		}
	}
	for _, name := range p.replaced {
		if err := tx.put(p.stage.join(replacedDir, name), p.dir.join(replacedDir, name)); err != nil {
			return err
		}
	}
	if err := tx.put(p.stage.join(manifestFile), p.dir.join(manifestFile)); err != nil {
		return err
	}
	if err := tx.setProtection(p.dir.join(Binary), false); err != nil {
		return err
	}
	if err := tx.put(p.stage.join(Binary), p.dir.join(Binary)); err != nil {
		return err
	}
	if p.protected {
		if err := tx.setProtection(p.dir.join(Binary), true); err != nil {
			return err
		}
	}
	for _, l := range p.links {
		if err := tx.put(p.stage.join(l.name), p.dir.join(l.name)); err != nil {
			return err
		}
	}
	return p.dir.sync()
}

// checkNames refuses names that are not plain file names of plugins.
func checkNames(names []string) error {
	if len(names) == 0 {
		return errors.New("there is no plugin to install")
	}
	for _, name := range names {
		if name == "" || name == Binary || strings.HasPrefix(name, ".") || strings.ContainsRune(name, '/') {
			return fmt.Errorf("%q is no name for a plugin", name)
		}
	}
	return nil
}

// union returns the names of both, sorted, each once.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
