package doctor

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/operator/runtimes"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/layout"
)

// pluginPath is where plugins are looked for.
type pluginPath struct {
	who      []string // runtimes
	confDir  string
	dirs     []string
	networks []*network
}

// places returns where runtimes look; if there are none, or who asks has said where, it is there.
func (s *subject) places() (list []*pluginPath, err error) {
	all := s.runtimes
	if all == nil || s.OwnBinDirs {
		all = []runtimes.Runtime{{Name: "cnictl", ConfDir: filepath.Clean(s.confDir()), BinDirs: s.BinDirs}}
	}
	for _, r := range all {
		i := slices.IndexFunc(list, func(p *pluginPath) bool { return p.confDir == r.ConfDir && slices.Equal(p.dirs, r.BinDirs) })
		if i >= 0 {
			list[i].who = append(list[i].who, r.Name)
			continue
		}
		networks, wrong := s.networksIn(r.ConfDir)
		err = errors.Join(err, wrong)
		list = append(list, &pluginPath{who: []string{r.Name}, confDir: r.ConfDir, dirs: r.BinDirs, networks: networks})
	}
	return list, err
}

// row returns our plugin that a configuration names, nil if it is somebody else's.
func (s *subject) row(name string) *plugin.Descriptor {
	dirs := slices.Clone(s.BinDirs)
	for _, r := range s.runtimes {
		if !s.OwnBinDirs {
			dirs = append(dirs, r.BinDirs...)
		}
	}
	return pluginfile.Row(s.Plugins, name, dirs)
}

func (s *subject) networksIn(dir string) (list []*network, err error) {
	if dir == filepath.Clean(s.confDir()) {
		return s.networks, nil
	}
	networks, _, err := node.Load(dir)
	for _, w := range networks {
		w.ReadPools(s.Plugins)
		list = append(list, &network{Network: w, parts: s.partsOf(w)})
	}
	return list, err
}

var pluginFiles = codes.Declare(finding.Code{Name: "plugin-files", Severity: finding.Info,
	Meaning: "The files that runtimes run, and their versions."})

// checkPlugins looks which file each runtime would run for each plugin that a network names.
func checkPlugins(_ context.Context, s *subject) (list []Finding, err error) {
	places, err := s.places()
	versions := map[string]string{} // by the program that is run, which is one for most
	first := map[string]string{}    // the first name of a file
	for _, p := range places {
		var seen []string
		names := fileNames{}
		runs := map[string][]string{} // names of plugins, by what their files are
		for _, n := range p.networks {
			list = append(list, s.missing(p, n)...)
			for _, part := range n.parts {
				files := pluginfile.Find(p.dirs, part.Named)
				if slices.Contains(seen, part.Named) || files == nil {
					continue
				}
				seen = append(seen, part.Named)
				id := files[0].Program().ID()
				if _, known := versions[id]; !known {
					versions[id] = strings.TrimSpace(files[0].String() + " " + files[0].Version())
				}
				if file := files[0].ID(); first[file] == "" {
					first[file] = files[0].Path
				}
				list = append(list, s.wrong(p, n, part, files, first[files[0].ID()])...)
				names.add(files[0], part)
				what := versions[id]
				runs[what] = append(runs[what], files[0].Path)
			}
		}
		for _, shared := range names.shared() {
			list = append(list, found(pluginOneFile, "", reinstall(filepath.Dir(shared[0]), baseNames(shared)...),
				"%s: %s are one file: an installer that writes one of these names replaces all", strings.Join(p.who, ", "), strings.Join(shared, ", ")).In(shared[0]))
		}
		for _, what := range slices.Sorted(maps.Keys(runs)) {
			list = append(list, found(pluginFiles, "", nil, "%s: %s: %s", strings.Join(p.who, ", "), what, strings.Join(runs[what], ", ")))
		}
	}
	return list, err
}

var pluginMissing = codes.Declare(finding.Code{Name: "plugin-missing", Severity: finding.Error,
	Meaning: "No container gets an interface of this network, and none is taken away.",
	Remedy:  "`cnictl install --dir DIR --only NAMES`"})

// missing finds the plugins of a network that are in none of the directories.
func (s *subject) missing(p *pluginPath, n *network) []Finding {
	var all, own, others []string
	for _, part := range n.parts {
		if pluginfile.Find(p.dirs, part.Named) != nil || slices.Contains(all, part.Named) {
			continue
		}
		all = append(all, part.Named)
		if part.Row != nil {
			own = append(own, part.Named)
		} else {
			others = append(others, part.Named)
		}
	}
	if all == nil {
		return nil
	}
	var remedy finding.Remedy
	if own != nil {
		words := []string{"cnictl", "install", "--dir", runtimes.BinDir(p.dirs), "--only", strings.Join(own, ",")}
		if slices.ContainsFunc(own, func(name string) bool {
			_, err := os.Lstat(filepath.Join(runtimes.BinDir(p.dirs), name))
			return err == nil
		}) {
			words = append(words, "--force") // such as a link that leads nowhere
		}
		remedy = append(remedy, finding.Run(words...)...)
	}
	if others != nil {
		remedy = append(remedy, finding.Say("cnibox has no plugin %s: install it with the software that wrote %s", strings.Join(others, ", "), n.File)...)
	}
	return []Finding{found(pluginMissing, n.Name, remedy, "network %s needs %s, and it is not in %s",
		n.Name, strings.Join(all, ", "), strings.Join(p.dirs, ":"))}
}

var (
	pluginNoExec = codes.Declare(finding.Code{Name: "plugin-noexec", Severity: finding.Error,
		Meaning: "Plugins can't be executed from where they are.",
		Remedy:  "`mount -o remount,exec MOUNT`"})
	pluginNotExecutable = codes.Declare(finding.Code{Name: "plugin-not-executable", Severity: finding.Error, Fixable: true,
		Meaning: "A runtime takes this file, and fails with \"permission denied\".",
		Remedy:  "`chmod 755 FILE`"})
	pluginForeign = codes.Declare(finding.Code{Name: "plugin-foreign", Severity: finding.Warning,
		Meaning: "A runtime runs a file of which nothing is known under a plugin's name.",
		Remedy:  "ask who has put it there; if nobody needs it, `cnictl install --dir DIR --only NAME --force`"})
	pluginShadowed = codes.Declare(finding.Code{Name: "plugin-shadowed", Severity: finding.Warning,
		Meaning: "A runtime runs a file that comes first in its path, and not the one that was installed.",
		Remedy:  "`cnictl install --dir DIR --only NAME --force`"})
	pluginAlone = codes.Declare(finding.Code{Name: "plugin-alone", Severity: finding.Error,
		Meaning: "No call of this plugin does anything: it is a stub, and the program that it runs is not beside it.",
		Remedy:  "`cnictl install --dir DIR --repair`"})
	pluginWrongName = codes.Declare(finding.Code{Name: "plugin-wrong-name", Severity: finding.Error,
		Meaning: "A runtime runs another plugin than the one that the network names.",
		Remedy:  "`cnictl install --dir DIR --only NAME --force`"})
	pluginOneFile = codes.Declare(finding.Code{Name: "plugin-one-file", Severity: finding.Error,
		Meaning: "An installer that writes one of these names in place (`cp -f portmap /opt/cni/bin/`) replaces all plugins at once.",
		Remedy:  "`cnictl install --dir DIR --only NAMES`"})
)

// fileNames are the paths of each file of cnibox, by the file and by what they stand for: a plugin, or "" for a program.
type fileNames map[os.FileInfo]map[string]string

// add adds a plugin's path, and the programs beside it. Others' plugins, such as k3s', may be one file by design.
func (n fileNames) add(run *pluginfile.File, part *netconf.Part) {
	if run.Origin != pluginfile.Ours || part.Row == nil {
		return
	}
	n.addPath(run.Info, part.Row.Name, run.Path)
	for _, name := range []string{pluginfile.Binary, pluginfile.EtcdBinary} {
		path := filepath.Join(filepath.Dir(run.Path), name)
		if info, err := os.Stat(path); err == nil {
			n.addPath(info, "", path)
		}
	}
}

func (n fileNames) addPath(info os.FileInfo, plugin, path string) {
	for known := range n {
		if os.SameFile(known, info) {
			n[known][plugin] = path
			return
		}
	}
	n[info] = map[string]string{plugin: path}
}

// shared returns the paths of each file that stands for several plugins. A second name of one plugin is none.
func (n fileNames) shared() (list [][]string) {
	for _, paths := range n {
		if len(paths) > 1 {
			list = append(list, slices.Sorted(maps.Values(paths)))
		}
	}
	return list
}

func baseNames(paths []string) (names []string) {
	for _, path := range paths {
		if name := filepath.Base(path); name != pluginfile.Binary && name != pluginfile.EtcdBinary {
			names = append(names, name)
		}
	}
	return names
}

// reinstall is the remedy that puts plugins back: all of an installation of cnictl's, or else those alone.
func reinstall(dir string, names ...string) finding.Remedy {
	if _, err := os.Stat(filepath.Join(dir, pluginfile.Manifest)); err == nil {
		return finding.Run("cnictl", "install", "--dir", dir, "--repair")
	}
	return finding.Run("cnictl", "install", "--dir", dir, "--only", strings.Join(names, ","))
}

// wrong finds what is wrong with the files of a plugin, of which the first is run. That is mended once, by the name that it was met by first.
func (s *subject) wrong(p *pluginPath, n *network, part *netconf.Part, files []*pluginfile.File, first string) []Finding {
	run, who := files[0], strings.Join(p.who, ", ")
	dir := filepath.Dir(run.Path)
	replace := finding.Run("cnictl", "install", "--dir", dir, "--only", part.Named, "--force")
	if at := s.noExec(run.Path); at != "" {
		return []Finding{found(pluginNoExec, n.Name, finding.Run("mount", "-o", "remount,exec", at), "%s, of network %s, can't be executed: %s is mounted noexec", run.Path, n.Name, at).In(run.Path)}
	}
	if !run.IsExecutable() {
		f := found(pluginNotExecutable, n.Name, finding.Run("chmod", "755", first), "%s, of network %s, can't be executed (%s)", run.Path, n.Name, run.Info.Mode()).In(run.Path)
		f.Fixable = run.Origin != pluginfile.Other
		return []Finding{f}
	}
	if part.Row == nil {
		return nil // nothing is known about it
	}
	if run.Kind == layout.Stub {
		program := run.Runs
		if program == nil {
			return []Finding{found(pluginAlone, n.Name, reinstall(dir, part.Named), "%s, of network %s, is a stub, and the program that it runs is not beside it", run.Path, n.Name).In(run.Path)}
		}
		if !program.Has(part.Row.Name) {
			return []Finding{found(pluginWrongName, n.Name, finding.Run("cnictl", "install", "--dir", dir, "--only", part.Named, "--force"),
				"%s, which %s of network %s runs, is %s, and no program that has the plugin", program.Path, run.Path, n.Name, program.String()).In(program.Path)}
		}
		if !program.IsExecutable() {
			f := found(pluginNotExecutable, n.Name, finding.Run("chmod", "755", program.Path),
				"%s, which %s of network %s runs, can't be executed (%s)", program.Path, run.Path, n.Name, program.Info.Mode()).In(program.Path)
			f.Fixable = true
			return []Finding{f}
		}
	}
	if run.Origin == pluginfile.Other {
		remedy := finding.Say("ask who has put it there; if nobody needs it: %s", replace)
		return []Finding{found(pluginForeign, n.Name, remedy, "%s, which network %s runs, is %s", run.Path, n.Name, run.String()).In(run.Path)}
	}
	if is := run.Plugin(); is != "" && is != part.Row.Name {
		return []Finding{found(pluginWrongName, n.Name, replace, "%s, of network %s, is the plugin %s of %s", run.Path, n.Name, is, run.Origin).In(run.Path)}
	}
	for _, f := range files[1:] {
		if f.Origin == pluginfile.Ours && f.Sum() != run.Sum() {
			return []Finding{found(pluginShadowed, n.Name, replace, "%s runs %s (%s) and not %s, since %s comes first", who, run.Path, run.String(), f.Path, dir).In(run.Path)}
		}
	}
	return nil
}

// noExec returns the mount point that keeps a file from being executed, "" if there is none.
func (s *subject) noExec(path string) string {
	var fs unix.Statfs_t
	end, err := filepath.EvalSymlinks(path)
	if err != nil || unix.Statfs(end, &fs) != nil || fs.Flags&unix.ST_NOEXEC == 0 {
		return ""
	}
	return s.mountOf(end)
}
