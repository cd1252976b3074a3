package runtimes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trust"
)

// configuration is where a runtime's configuration is, and how it says where networks and plugins are.
type configuration struct {
	Runtime  // with its defaults
	word     string
	files    []string   // patterns; of two files that say something the later counts
	named    []string   // by command lines, in place of files
	others   []string   // of programs that have this runtime inside
	partOf   string     // the runtime that is inside
	confKeys [][]string // paths of keys
	binKeys  [][]string
	needs    string // the value that its key network.network_backend must have
	since110 [2]int // the version that knows CNI 1.1.0
	// sinceLoopback is the version of containerd that may set a pod's lo up itself.
	sinceLoopback [2]int
}

const k3s = "/var/lib/rancher/k3s"

// The names of containerd's plugin for pods, in the forms of its configuration before 3 and since.
const (
	cri        = "io.containerd.grpc.v1.cri"
	criRuntime = "io.containerd.cri.v1.runtime"
)

var (
	containerdConf     = [][]string{{"plugins", cri, "cni", "conf_dir"}, {"plugins", criRuntime, "cni", "conf_dir"}}
	containerdBin      = [][]string{{"plugins", cri, "cni", "bin_dir"}, {"plugins", criRuntime, "cni", "bin_dir"}, {"plugins", criRuntime, "cni", "bin_dirs"}}
	containerdLoopback = [][]string{{"plugins", cri, "cni", "use_internal_loopback"}, {"plugins", criRuntime, "cni", "use_internal_loopback"}}
	containerdPods     = []string{"cri", cri, criRuntime}
)

var configurations = []configuration{
	{
		Runtime:  Runtime{Name: "containerd", Process: "containerd", TakesOne: true},
		word:     "containerd",
		files:    []string{"/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml"},
		others:   []string{k3s + "/agent/etc/containerd/config.toml", "/var/lib/rancher/rke2/agent/etc/containerd/config.toml"},
		confKeys: containerdConf,
		binKeys:  containerdBin,
		since110: [2]int{2, 0},

		sinceLoopback: [2]int{2, 0},
	},
	{
		Runtime:  Runtime{Name: "CRI-O", Process: "crio", TakesOne: true},
		word:     "crio",
		files:    []string{"/usr/share/crio/crio.conf.d/*", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"},
		confKeys: [][]string{{"crio", "network", "network_dir"}},
		binKeys:  [][]string{{"crio", "network", "plugin_dirs"}},
		since110: [2]int{1, 32},
	},
	{
		Runtime: Runtime{Name: "podman", Process: "podman",
			BinDirs: []string{"/usr/local/libexec/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/lib/cni", "/opt/cni/bin"}},
		word:     "podman",
		files:    []string{"/usr/share/containers/containers.conf", "/etc/containers/containers.conf", "/etc/containers/containers.conf.d/*.conf"},
		confKeys: [][]string{{"network", "network_config_dir"}},
		binKeys:  [][]string{{"network", "cni_plugin_dirs"}},
		needs:    "cni",
	},
	{
		Runtime:  Runtime{Name: "Nomad", Process: "nomad", ConfDir: "/opt/cni/config"},
		word:     "nomad",
		files:    []string{"/etc/nomad.d"},
		confKeys: [][]string{{"client", "cni_config_dir"}},
		binKeys:  [][]string{{"client", "cni_path"}},
		since110: [2]int{1, 10},
	},
	{
		Runtime: Runtime{Name: "k3s", Process: "containerd", TakesOne: true, ConfDir: k3s + "/agent/etc/cni/net.d",
			BinDirs: []string{k3s + "/data/cni", k3s + "/data/current/bin"}},
		word:     "k3s",
		partOf:   "containerd",
		files:    []string{k3s + "/agent/etc/containerd/config.toml"},
		confKeys: containerdConf,
		binKeys:  containerdBin,
		since110: [2]int{1, 33},
	},
	{
		Runtime: Runtime{Name: "nerdctl", Process: "nerdctl",
			BinDirs: []string{"/usr/local/libexec/cni", "/usr/local/lib/cni", "/usr/libexec/cni", "/usr/lib/cni", "/opt/cni/bin"}},
		word:     "nerdctl",
		files:    []string{"/etc/nerdctl/nerdctl.toml"},
		confKeys: [][]string{{"cni_netconfpath"}},
		binKeys:  [][]string{{"cni_path"}},
		since110: [2]int{2, 0},
	},
}

// read returns the runtime as the files of its configuration have it.
func (c configuration) read(o Options) (r Runtime, err error) {
	r = c.Runtime
	if r.BinDirs == nil {
		r.BinDirs = []string{node.DefaultBinDir}
	}
	for _, path := range slices.Concat(expand(o.tree(), c.files, true), expand(o.tree(), c.named, false)) {
		values, wrong := readFile(o.tree(), path)
		if errors.Is(wrong, fs.ErrNotExist) {
			continue
		}
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("read the configuration of %s: %s: %w", c.Name, path, wrong))
			continue
		}
		r.Files = append(r.Files, path)
		for _, key := range c.confKeys {
			r.ConfDir = cmp.Or(firstOf(textsAt(values, key)), r.ConfDir)
		}
		for _, key := range c.binKeys {
			if dirs := textsAt(values, key); len(dirs) > 0 {
				r.BinDirs = dirs
			}
		}
		r.backend = cmp.Or(firstOf(textsAt(values, []string{"network", "network_backend"})), r.backend)
		for _, key := range containerdLoopback {
			if own, is := at(values, key).(bool); is {
				r.ownLoopback = own
			}
		}
		if off := textsAt(values, []string{"disabled_plugins"}); off != nil {
			r.noPods = slices.ContainsFunc(off, func(name string) bool { return slices.Contains(containerdPods, name) })
		}
		if format, ok := values["version"].(int64); ok {
			r.format = int(format)
		}
	}
	r.ConfDir = filepath.Clean(cmp.Or(r.ConfDir, o.ConfDir, node.DefaultConfDir))
	return r, err
}

// trusted returns why one of the runtime's directories must not be looked into.
func (r Runtime) trusted(o Options) error {
	for _, dir := range append([]string{r.ConfDir}, r.BinDirs...) {
		if err := o.tree().Check(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s uses the directory %s, and cnictl does not: %w", r.Name, dir, err)
		}
	}
	return nil
}

// expand returns the files that paths mean. In the last element of a pattern "*" stands for anything. Of a directory they are those that Nomad reads.
func expand(tree trust.Tree, paths []string, arePatterns bool) (files []string) {
	for _, p := range paths {
		dir, name := filepath.Split(p)
		if arePatterns && strings.Contains(name, "*") {
			files = append(files, matches(tree, dir, name)...)
		} else if _, err := tree.Names(p); err == nil {
			files = append(append(files, matches(tree, p, "*.hcl")...), matches(tree, p, "*.json")...)
		} else {
			files = append(files, p)
		}
	}
	return files
}

// matches returns the files in a directory that match a pattern, or the directory if it can't be read, for the error.
func matches(tree trust.Tree, dir, pattern string) (files []string) {
	names, err := tree.Names(dir)
	if err != nil {
		return []string{dir}
	}
	for _, name := range names {
		if fits, _ := filepath.Match(pattern, name); fits {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files
}

// readFile reads a file of a runtime's configuration: Nomad's are HCL or JSON, all others TOML.
func readFile(tree trust.Tree, path string) (values map[string]any, err error) {
	text, err := tree.Read(path)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(path) {
	case ".json":
		return values, json.Unmarshal(text, &values)
	case ".hcl":
		return readHCL(text), nil
	}
	for line := range bytes.Lines(text) {
		if bytes.Count(line, []byte(".")) > mostDots {
			return nil, fmt.Errorf("a line has more than %d dots", mostDots)
		}
	}
	return values, toml.Unmarshal(text, &values)
}

// mostDots bounds how deep tables are nested by their names, a.b.c, which the library does not. It bounds brackets itself, as does that for JSON.
const mostDots = 1000

// assignment is a line of Nomad's HCL that says where networks or plugins are.
var assignment = regexp.MustCompile(`(?m)^(?:[ \t]*client[ \t]*\{)?[ \t]*"?(cni_path|cni_config_dir)"?[ \t]*=[ \t]*"([^"\\$%\n]*)"`)

// readHCL finds the two keys that are needed of Nomad's configuration. They are called so in the block client alone, and are plain texts.
func readHCL(text []byte) map[string]any {
	client := map[string]any{}
	for _, m := range assignment.FindAllSubmatch(text, -1) {
		client[string(m[1])] = string(m[2])
	}
	return map[string]any{"client": client}
}

// at returns what is at a path of keys, nil if there is nothing.
func at(value any, path []string) any {
	for _, key := range path {
		if blocks, several := value.([]any); several && len(blocks) > 0 { // Nomad's JSON may have a list of blocks
			value = blocks[len(blocks)-1]
		}
		table, _ := value.(map[string]any)
		value = table[key]
	}
	return value
}

// textsAt returns the text or the texts at a path of keys. Directories in one text are separated by ":".
func textsAt(value any, path []string) (list []string) {
	value = at(value, path)
	if one, is := value.(string); is {
		return filepath.SplitList(one)
	}
	several, _ := value.([]any)
	for _, e := range several {
		if text, is := e.(string); is {
			list = append(list, text)
		}
	}
	return list
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
