package install

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/operator/stub"
	"github.com/cnibox/cnibox/pkg/process/layout"
)

// Etcd is a plugin that is a program of its own. It is installed if its binary lies beside cnibox.
const Etcd = shared.Plugin

// binaryOf returns the name of the binary that a plugin's name leads to.
func binaryOf(name string) string {
	if name == Etcd {
		return pluginfile.EtcdBinary
	}
	return pluginfile.Binary
}

// binaries returns the names of the binaries that plugins need.
func binaries(names []string) []string {
	if slices.Contains(names, Etcd) {
		return []string{pluginfile.Binary, pluginfile.EtcdBinary}
	}
	return []string{pluginfile.Binary}
}

// Link is what a plugin's name is.
type Link string

// The kinds of files.
const (
	Stub Link = "stub" // runs the cnibox beside it
	Copy Link = "copy" // a whole cnibox
)

// Links are all kinds, the default first.
var Links = []Link{Stub, Copy}

// Options are what to install and where.
type Options struct {
	Dir   string   // made if it does not exist
	From  string   // the cnibox to install
	Names []string // the plugins to install
	Link  Link
	Force bool // replace files that are not cnibox's, and keep them for Uninstall

	Network    string // a network's file to install after the plugins, or a directory of such; "" is none
	NetworkDir string // where to
}

// Report is what Install did.
type Report struct {
	Dir       string // without symbolic links
	Names     []string
	Networks  []string // the files of networks that are there now
	Unchanged bool     // all was there already
	Replaced  []string // names whose former files Uninstall brings back
	Left      []string // names that another installer has taken over since, and keeps
	NoExec    bool     // nothing in the directory can be executed, as it is mounted here
	Files     []ui.File

	others map[string]string // what the files of others are, those of Replaced and Left
}

// Install makes o.Dir hold cnibox and a file for each of o.Names and for each name of an earlier installation: it takes no plugin away.
// Networks come last, as a runtime that sees one attaches containers.
func Install(o Options) (*Report, error) {
	if o.Network == "" {
		return installPlugins(o)
	}
	networks, err := readNetworks(o.Network, o.NetworkDir)
	if err != nil {
		return nil, err
	}
	areThere := !slices.ContainsFunc(networks, func(n *network) bool { return !n.isInstalled() })
	r, err := installPlugins(o)
	if err != nil {
		return nil, err
	}
	r.Unchanged = r.Unchanged && areThere
	for _, n := range networks {
		outcome := ui.Unchanged
		if !n.isInstalled() {
			outcome = ui.Written
		}
		if err := n.install(); err != nil {
			return nil, err
		}
		r.Networks = append(r.Networks, n.path)
		r.Files = append(r.Files, ui.File{Path: n.path, Outcome: outcome})
	}
	return r, nil
}

func installPlugins(o Options) (*Report, error) {
	if err := checkNames(o.Names); err != nil {
		return nil, err
	}
	programs := map[string][]byte{}
	for _, name := range binaries(o.Names) {
		var err error
		if programs[name], err = readBinary(name, o.From); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory: %w", err)
	}
	d, err := open(o.Dir)
	if err != nil {
		return nil, err
	}
	defer d.close()
	installed, err := d.readManifest()
	if err != nil {
		return nil, err
	}
	wanted := slices.Compact(slices.Sorted(slices.Values(slices.Concat(installed, o.Names))))
	r, err := d.plan(wanted, installed, o.Force)
	if err != nil {
		return nil, err
	}
	staging, err := os.MkdirTemp(d.path, stagingPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a directory to prepare the installation in: %w", err)
	}
	defer os.RemoveAll(staging)
	if programs[pluginfile.EtcdBinary] == nil { // an earlier installation's stays as it is
		r.Names = slices.DeleteFunc(r.Names, func(name string) bool { return name == Etcd })
	}
	if err := stage(staging, r.Names, wanted, o.Link, programs); err != nil {
		return nil, fmt.Errorf("prepare the installation in %s (nothing was changed): %w", d.path, err)
	}
	// The manifest comes first: should the machine die on the way, uninstall knows every name. cnibox comes before what runs it.
	files := slices.Concat([]string{manifestFile}, binaries(r.Names), r.Names)
	var changed []string
	for _, name := range files {
		same := isSame(staging, d.path, name)
		if !same {
			changed = append(changed, name)
		}
		r.describe(name, same)
	}
	// Files that are all there without a manifest belong to a package, which removes them itself: uninstall must not.
	r.Unchanged = changed == nil || installed == nil && slices.Equal(changed, []string{manifestFile})
	for _, name := range r.Left {
		r.Files = append(r.Files, ui.File{Path: d.join(name), Outcome: ui.Left, Why: r.others[name] + ", written by another installer since; --force takes it over"})
	}
	if r.Unchanged {
		return r, nil
	}
	for _, name := range changed {
		if slices.Contains(r.Replaced, name) {
			err = d.backUp(name)
		}
		if err == nil {
			err = os.Rename(filepath.Join(staging, name), d.join(name))
		}
		if err != nil {
			return nil, fmt.Errorf("install %s: %w; mend that and install again, or uninstall", d.join(name), err)
		}
	}
	return r, d.file.Sync()
}

// describe notes what becomes of a file, which is the same as the one that is there or is not.
func (r *Report) describe(name string, same bool) {
	f := ui.File{Path: filepath.Join(r.Dir, name), Outcome: ui.Written}
	switch {
	case name == manifestFile: // nobody else's business
		return
	case slices.Contains(r.Replaced, name):
		f.Outcome, f.Why = ui.Replaced, r.others[name]+" was there; uninstall brings it back"
	case same:
		f.Outcome = ui.Unchanged
	}
	r.Files = append(r.Files, f)
}

func isBinary(name string) bool { return name == pluginfile.Binary || name == pluginfile.EtcdBinary }

// readBinary returns the content of a cnibox, or of the binary beside it.
func readBinary(name, cnibox string) ([]byte, error) {
	path, main := cnibox, pluginfile.Main
	if name == pluginfile.EtcdBinary {
		path, main = filepath.Join(filepath.Dir(cnibox), pluginfile.EtcdBinary), pluginfile.MainEtcd
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the %s to install: %w; name the cnibox to install with --from FILE", name, err)
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil || info.Path != main {
		return nil, fmt.Errorf("%s is not a %s binary; name a cnibox with --from FILE", path, name)
	}
	return content, nil
}

// plan decides what becomes of each name, and refuses to overwrite what cnictl did not install.
func (d *directory) plan(wanted, installed []string, force bool) (*Report, error) {
	r := &Report{Dir: d.path, NoExec: d.noExec(), others: map[string]string{}}
	var inTheWay []string
	for _, name := range append(binaries(wanted), wanted...) {
		foreign, err := d.foreign(name)
		if installed != nil && (isBinary(name) || slices.Contains(installed, name)) && d.isDamaged(name) {
			foreign = "" // nobody else has written that
		}
		r.others[name] = foreign
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w; move it away or choose another directory", d.join(name), err)
		case foreign == "":
		case force:
			r.Replaced = append(r.Replaced, name)
		case slices.Contains(installed, name): // another installer has it now
			r.Left = append(r.Left, name)
			continue
		default:
			inTheWay = append(inTheWay, fmt.Sprintf("%s (%s)", name, foreign))
			continue
		}
		if !isBinary(name) {
			r.Names = append(r.Names, name)
		}
	}
	if inTheWay == nil {
		return r, nil
	}
	remedy := "--force replaces them, and uninstall brings them back"
	if r.Names != nil && !strings.HasPrefix(inTheWay[0], pluginfile.Binary+" ") {
		remedy += "; --only " + strings.Join(r.Names, ",") + " leaves them alone"
	}
	return nil, fmt.Errorf("%s has files that cnictl did not install: %s; %s", d.path, strings.Join(inTheWay, ", "), remedy)
}

// isSame reports whether a name in one directory is the same file as in the other, byte by byte.
func isSame(a, b, name string) bool {
	infoA, errA := os.Lstat(filepath.Join(a, name))
	infoB, errB := os.Lstat(filepath.Join(b, name))
	if errA != nil || errB != nil || infoA.Mode() != infoB.Mode() || infoA.Size() != infoB.Size() || isHardLink(infoB) {
		return false
	}
	contentA, errA := os.ReadFile(filepath.Join(a, name))
	contentB, errB := os.ReadFile(filepath.Join(b, name))
	return errA == nil && errB == nil && bytes.Equal(contentA, contentB)
}

// isHardLink reports whether a file has other names, as older versions have made them: who writes one, writes all.
func isHardLink(info os.FileInfo) bool { return info.Sys().(*syscall.Stat_t).Nlink > 1 }

// stage makes all files in a directory of their own.
func stage(dir string, names, wanted []string, link Link, programs map[string][]byte) error {
	text, err := json.MarshalIndent(manifest{wanted}, "", "  ")
	if err == nil {
		err = writeFile(filepath.Join(dir, manifestFile), append(text, '\n'), 0o644)
	}
	own, failed := os.ReadFile("/proc/self/exe")
	err = cmp.Or(err, failed)
	for binary, program := range programs {
		var stubs []byte
		if err == nil {
			stubs, err = stub.Make(own, stub.Programs(binary)...)
		}
		if err == nil {
			err = writeFile(filepath.Join(dir, binary), program, 0o755)
		}
		copied := bytes.Clone(program)
		layout.Mark(copied, layout.Whole)
		for _, name := range names {
			switch {
			case err != nil:
				return err
			case binaryOf(name) != binary:
			case link == Copy || name == layout.WholePlugin:
				err = writeFile(filepath.Join(dir, name), copied, 0o755)
			default:
				err = writeFile(filepath.Join(dir, name), stubs, 0o755)
			}
		}
	}
	return err
}

// writeFile makes a new file of exactly this mode, and waits until its content is on the disk.
func writeFile(path string, content []byte, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
}
