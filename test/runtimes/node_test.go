package runtimes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// Where a runtime keeps everything but what it insists on having in /run. Snapshots do not look here.
const (
	workDir     = "/srv"
	imageFile   = workDir + "/image.tar"
	observerLog = workDir + "/calls"
)

// The network the containers are attached to.
const (
	networkName = "web"
	bridgeName  = "cni0"
	podNetwork  = "10.88.0.0/24"
	conflistDir = "/etc/cni/net.d"
	// conflistFile is the first by name.
	conflistFile = conflistDir + "/10-web.conflist"

	// somaxconn is what tuning sets net.core.somaxconn of a container to; it is not the kernel's default.
	somaxconn = "513"
)

// node is a host with the plugins, the network and the image in place, and somebody outside.
type node struct {
	*netlab.Host
	outside  *netlab.Outside
	conflist string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Host: netlab.NewHost(t)}
	n.mountWorkDirs(t)
	n.installPlugins(t)
	n.outside = n.NewOutside(t)
	n.outside.AddRoute(t, podNetwork)
	n.use(t, network{})
	n.do(t, func() error { return writeImage(imageFile) })
	return n
}

// network is what tests choose of a network, each with a value of its own when it is not chosen.
type network struct {
	version, name, bridge string
	subnets, routes       []string
}

// conflist returns the configuration of the network.
func (w network) conflist(t *testing.T) string {
	t.Helper()
	type object = map[string]any
	ranges, routes := [][]object{}, []object{}
	for _, subnet := range orElse(w.subnets, podNetwork) {
		ranges = append(ranges, []object{{"subnet": subnet}})
	}
	for _, route := range orElse(w.routes, "0.0.0.0/0") {
		routes = append(routes, object{"dst": route})
	}
	list, err := json.MarshalIndent(object{
		"cniVersion": cmp.Or(w.version, "1.0.0"),
		"name":       cmp.Or(w.name, networkName),
		"plugins": []object{
			{
				"type": "bridge", "bridge": cmp.Or(w.bridge, bridgeName), "isGateway": true, "ipMasq": true,
				"hairpinMode": true, // a container reaches its own published port so where bridged packets are filtered
				"ipam":        object{"type": "host-local", "ranges": ranges, "routes": routes},
			},
			{"type": "tuning", "sysctl": object{"net.core.somaxconn": somaxconn}},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
			{"type": observerName, "log": observerLog},
		},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(list)
}

func orElse(list []string, one string) []string {
	if list == nil {
		return []string{one}
	}
	return list
}

// use makes this the network that containers are attached to.
func (n *node) use(t *testing.T, w network) {
	t.Helper()
	n.conflist = w.conflist(t)
	n.writeFile(t, conflistFile, n.conflist)
}

// mountWorkDirs hides the directories that runtimes use and that netlab does not hide: podman unpacks images in /var/tmp
// and keeps its locks in /dev/shm.
func (n *node) mountWorkDirs(t *testing.T) {
	t.Helper()
	n.do(t, func() error {
		for _, dir := range []string{workDir, "/var/tmp", "/dev/shm"} {
			if err := mountTmpfs(dir); err != nil {
				return err
			}
		}
		// Debian's ctr looks here for a plugin that is not in /opt/cni/bin, and finds the reference plugins, which
		// come with Debian's podman.
		err := mountTmpfs("/usr/lib/cni")
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// mountTmpfs mounts an empty file system on dir, in the mount namespace of the calling thread.
func mountTmpfs(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
	}
	return nil
}

// installPlugins fills the plugin directory, the way an operator does, or with the plugins in PLUGIN_DIR.
func (n *node) installPlugins(t *testing.T) {
	t.Helper()
	observer, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n.InstallPlugin(t, observerName, observer)
	if dir := os.Getenv("PLUGIN_DIR"); dir != "" {
		t.Logf("plugins: those in %s", dir)
		n.linkPlugins(t, dir)
		return
	}
	installed := n.run(t, netlab.Cnictl(t), "install", "--dir", netlab.PluginDir, "--from", netlab.Cnibox(t))
	t.Logf("plugins: %s", installed)
}

func (n *node) linkPlugins(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		n.InstallPlugin(t, entry.Name(), filepath.Join(dir, entry.Name()))
	}
}

// run runs a program on the node and returns what it printed, without the space around it. A failure ends the test.
func (n *node) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), netlab.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second // for a container that keeps the pipe open
	out, err := n.Output(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// do runs fn with the node's files. An error ends the test.
func (n *node) do(t *testing.T, fn func() error) {
	t.Helper()
	var err error
	n.Do(func() { err = fn() })
	if err != nil {
		t.Fatal(err)
	}
}

// writeFile makes a file whole at once: containerd reads a network as soon as its file changes, and has none while that is empty.
func (n *node) writeFile(t *testing.T, path, content string) {
	t.Helper()
	n.do(t, func() error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path+".new", []byte(content), 0o644); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	})
}

func (n *node) readFile(t *testing.T, path string) (content string) {
	t.Helper()
	n.do(t, func() error {
		text, err := os.ReadFile(path)
		content = string(text)
		return err
	})
	return content
}
