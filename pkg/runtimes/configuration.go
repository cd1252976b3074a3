package runtimes

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/hcl"
	"github.com/pelletier/go-toml/v2"

	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/state"
)

// configuration is where a runtime's configuration is, and how it says where networks and plugins are.
type configuration struct {
	Runtime  // with its defaults
	word     string
	files    []string   // patterns; of two files that say something the later counts
	others   []string   // of programs that have this runtime inside
	partOf   string     // the runtime that is inside
	confKeys [][]string // paths of keys
	binKeys  [][]string
	needs    string // the value that its key network.network_backend must have
	since110 [2]int // the version that knows CNI 1.1.0
}

const k3s = "/var/lib/rancher/k3s"

var (
	containerdConf = [][]string{{"plugins", "io.containerd.grpc.v1.cri", "cni", "conf_dir"}, {"plugins", "io.containerd.cri.v1.runtime", "cni", "conf_dir"}}
	containerdBin  = [][]string{{"plugins", "io.containerd.grpc.v1.cri", "cni", "bin_dir"}, {"plugins", "io.containerd.cri.v1.runtime", "cni", "bin_dir"},
		{"plugins", "io.containerd.cri.v1.runtime", "cni", "bin_dirs"}}
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
	for _, path := range expand(o.Root, c.files) {
		values, wrong := readFile(o.Root + path)
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("read the configuration of %s: %s: %w", c.Name, path, wrong))
			continue
		}
		r.Files = append(r.Files, path)
		for _, key := range c.confKeys {
			r.ConfDir = cmp.Or(first(at(values, key)), r.ConfDir)
		}
		for _, key := range c.binKeys {
			if dirs := at(values, key); len(dirs) > 0 {
				r.BinDirs = dirs
			}
		}
		r.backend = cmp.Or(first(at(values, []string{"network", "network_backend"})), r.backend)
		if format, ok := values["version"].(int64); ok {
			r.format = int(format)
		}
	}
	r.ConfDir = filepath.Clean(cmp.Or(r.ConfDir, o.ConfDir, node.DefaultConfDir))
	return r, err
}

// expand returns the files that patterns match below root, in the order of their names. Of a directory it returns the files that Nomad reads.
func expand(root string, patterns []string) (paths []string) {
	for _, p := range patterns {
		if info, err := os.Stat(root + p); err == nil && info.IsDir() {
			paths = append(paths, expand(root, []string{p + "/*.hcl", p + "/*.json"})...)
			continue
		}
		matches, _ := filepath.Glob(root + p)
		for _, m := range matches {
			paths = append(paths, m[len(root):])
		}
	}
	return paths
}

// readFile reads a file of a runtime's configuration: Nomad's are HCL or JSON, all others TOML.
func readFile(path string) (values map[string]any, err error) {
	text, err := state.Read(path)
	if err != nil {
		return nil, err
	}
	if ext := filepath.Ext(path); ext != ".hcl" && ext != ".json" {
		return values, toml.Unmarshal(text, &values)
	}
	return readHCL(text)
}

// readHCL reads the first version of HCL, which Nomad has for its agents, and of which JSON is a part.
func readHCL(text []byte) (map[string]any, error) {
	var config struct {
		Client []struct {
			CNIPath      string `hcl:"cni_path"`
			CNIConfigDir string `hcl:"cni_config_dir"`
		} `hcl:"client"`
	}
	if err := hcl.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	client := map[string]any{}
	for _, c := range config.Client {
		if c.CNIPath != "" {
			client["cni_path"] = c.CNIPath
		}
		if c.CNIConfigDir != "" {
			client["cni_config_dir"] = c.CNIConfigDir
		}
	}
	return map[string]any{"client": client}, nil
}

// at returns the text or the texts at a path of keys. Directories in one text are separated by ":".
func at(value any, path []string) (list []string) {
	for _, key := range path {
		table, _ := value.(map[string]any)
		value = table[key]
	}
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

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
