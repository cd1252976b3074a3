package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"

	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/state"
)

// containerRuntime is a container runtime of this node, and where it looks for networks and plugins.
type containerRuntime struct {
	name     string
	process  string // what its processes are called
	takesOne bool   // of the networks in its directory it takes the first for all containers, and is told when that changes
	confDir  string
	binDirs  []string
}

// configuration is where a runtime's configuration is, and how it says where networks and plugins are.
type configuration struct {
	containerRuntime
	files    []string   // patterns; of two files that say something the later counts
	confKeys [][]string // paths of keys
	binKeys  [][]string
	needs    string // the value that its key network.network_backend must have
}

var configurations = []configuration{
	{
		containerRuntime: containerRuntime{name: "containerd", process: "containerd", takesOne: true},
		files: []string{"/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
			"/var/lib/rancher/rke2/agent/etc/containerd/config.toml"},
		confKeys: [][]string{{"plugins", "io.containerd.grpc.v1.cri", "cni", "conf_dir"}, {"plugins", "io.containerd.cri.v1.runtime", "cni", "conf_dir"}},
		binKeys: [][]string{{"plugins", "io.containerd.grpc.v1.cri", "cni", "bin_dir"}, {"plugins", "io.containerd.cri.v1.runtime", "cni", "bin_dir"},
			{"plugins", "io.containerd.cri.v1.runtime", "cni", "bin_dirs"}},
	},
	{
		containerRuntime: containerRuntime{name: "CRI-O", process: "crio", takesOne: true},
		files:            []string{"/usr/share/crio/crio.conf.d/*", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"},
		confKeys:         [][]string{{"crio", "network", "network_dir"}},
		binKeys:          [][]string{{"crio", "network", "plugin_dirs"}},
	},
	{
		containerRuntime: containerRuntime{name: "podman", process: "podman",
			binDirs: []string{"/usr/local/libexec/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/lib/cni", "/opt/cni/bin"}},
		files:    []string{"/usr/share/containers/containers.conf", "/etc/containers/containers.conf", "/etc/containers/containers.conf.d/*.conf"},
		confKeys: [][]string{{"network", "network_config_dir"}},
		binKeys:  [][]string{{"network", "cni_plugin_dirs"}},
		needs:    "cni",
	},
	{
		containerRuntime: containerRuntime{name: "nerdctl", process: "nerdctl",
			binDirs: []string{"/usr/local/libexec/cni", "/usr/local/lib/cni", "/usr/libexec/cni", "/usr/lib/cni", "/opt/cni/bin"}},
		files:    []string{"/etc/nerdctl/nerdctl.toml"},
		confKeys: [][]string{{"cni_netconfpath"}},
		binKeys:  [][]string{{"cni_path"}},
	},
}

// findRuntimes returns the runtimes that are configured here, or run. A configuration that can't be read is an error beside the list.
func findRuntimes(processes []process, confDir string) (list []containerRuntime, err error) {
	for _, c := range configurations {
		runs := false
		for _, p := range processes {
			if p.name != c.process {
				continue
			}
			runs = true
			if file := p.configFile(); file != "" {
				c.files = []string{file}
			}
		}
		r, configured, wrong := c.read()
		err = errors.Join(err, wrong)
		if configured || runs && c.needs == "" {
			r.confDir = filepath.Clean(cmp.Or(r.confDir, confDir))
			list = append(list, r)
		}
	}
	return list, err
}

// read returns what the files of a runtime's configuration say, and reports whether it is configured to work with CNI.
func (c configuration) read() (r containerRuntime, configured bool, err error) {
	r = c.containerRuntime
	if r.binDirs == nil {
		r.binDirs = []string{node.DefaultBinDir}
	}
	backend := ""
	for _, path := range expand(c.files) {
		values, wrong := readTOML(path)
		if wrong != nil {
			err = errors.Join(err, wrong)
			continue
		}
		configured = true
		for _, key := range c.confKeys {
			r.confDir = cmp.Or(first(at(values, key)), r.confDir)
		}
		for _, key := range c.binKeys {
			if dirs := at(values, key); len(dirs) > 0 {
				r.binDirs = dirs
			}
		}
		backend = cmp.Or(first(at(values, []string{"network", "network_backend"})), backend)
	}
	return r, configured && (c.needs == "" || c.needs == backend), err
}

// expand returns the files that patterns match, in the order of their names.
func expand(patterns []string) (paths []string) {
	for _, p := range patterns {
		matches, _ := filepath.Glob(p)
		paths = append(paths, matches...)
	}
	return paths
}

func readTOML(path string) (values map[string]any, err error) {
	text, err := state.Read(path)
	if err == nil {
		err = toml.Unmarshal(text, &values)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return values, nil
}

// at returns the text or the texts at a path of keys.
func at(value any, path []string) (list []string) {
	for _, key := range path {
		table, _ := value.(map[string]any)
		value = table[key]
	}
	if one, is := value.(string); is {
		return []string{one}
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
