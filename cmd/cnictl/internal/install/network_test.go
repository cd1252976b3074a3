package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	oneNetwork   = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}]}`
	otherNetwork = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp"}]}`
)

func writeNetwork(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNetwork installs a network, another one, the same again, and removes it.
func TestNetwork(t *testing.T) {
	dir, networks, file := t.TempDir(), filepath.Join(t.TempDir(), "cni/net.d"), filepath.Join(t.TempDir(), "99-pods.conflist")
	o := Options{Dir: dir, From: release(t, ""), Network: file, NetworkDir: networks}
	for _, content := range []string{oneNetwork, otherNetwork} {
		writeNetwork(t, file, content)
		for _, unchanged := range []bool{false, true} {
			if r := mustInstall(t, o); r.Unchanged != unchanged || !slices.Equal(r.Networks, []string{filepath.Join(networks, "99-pods.conflist")}) {
				t.Errorf("%+v, want unchanged %v", r, unchanged)
			}
			assertTree(t, networks, "99-pods.conflist -rw-r--r-- "+sum(t, file))
		}
	}
	writeNetwork(t, file, oneNetwork)
	if err := UninstallNetwork(file, networks); err == nil || !strings.Contains(err.Error(), "is not what was installed") {
		t.Error(err)
	}
	writeNetwork(t, file, otherNetwork)
	for range 2 {
		if err := UninstallNetwork(file, networks); err != nil {
			t.Error(err)
		}
	}
	assertTree(t, networks, "")
}

// TestDirectoryOfNetworks installs and removes what is in a directory, as a ConfigMap is mounted: nothing, and then two networks as links.
func TestDirectoryOfNetworks(t *testing.T) {
	from, networks := t.TempDir(), t.TempDir()
	o := Options{Dir: t.TempDir(), From: release(t, ""), Network: from, NetworkDir: networks}
	if r := mustInstall(t, o); r.Networks != nil {
		t.Errorf("installed %s of an empty directory", r.Networks)
	}
	data := filepath.Join(from, "..data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"10-pods.conflist": oneNetwork, "20-pods.conflist": otherNetwork, "README": ""} {
		writeNetwork(t, filepath.Join(data, name), content)
		if err := os.Symlink("..data/"+name, filepath.Join(from, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, unchanged := range []bool{false, true} {
		if r := mustInstall(t, o); r.Unchanged != unchanged || len(r.Networks) != 2 {
			t.Errorf("%+v, want unchanged %v", r, unchanged)
		}
	}
	assertTree(t, networks, "10-pods.conflist -rw-r--r-- "+sum(t, filepath.Join(data, "10-pods.conflist"))+
		"\n20-pods.conflist -rw-r--r-- "+sum(t, filepath.Join(data, "20-pods.conflist")))
	if err := UninstallNetwork(from, networks); err != nil {
		t.Error(err)
	}
	assertTree(t, networks, "")
}

// TestNetworkComesLast: where plugins can't be installed, no network says that there are some.
func TestNetworkComesLast(t *testing.T) {
	dir, networks := t.TempDir(), t.TempDir()
	writeForeign(t, filepath.Join(dir, "bridge"), "somebody else's")
	file := writeNetwork(t, filepath.Join(t.TempDir(), "99-pods.conflist"), oneNetwork)
	if _, err := Install(Options{Dir: dir, From: release(t, ""), Names: names, Link: Symbolic, Network: file, NetworkDir: networks}); err == nil {
		t.Error("installed over somebody else's file")
	}
	assertTree(t, networks, "")
}

// TestBadNetwork: what no runtime could read stops the installation before it begins.
func TestBadNetwork(t *testing.T) {
	for _, tt := range []struct{ name, content, want string }{
		{"pods.conflist", "{", "nothing was changed"},
		{"pods.conflist", `{"type": "bridge"}`, "nothing was changed"},
		{"pods.conf", oneNetwork, "has to end in .conflist"},
	} {
		dir := filepath.Join(t.TempDir(), "bin")
		file := writeNetwork(t, filepath.Join(t.TempDir(), tt.name), tt.content)
		_, err := Install(Options{Dir: dir, From: release(t, ""), Names: names, Link: Symbolic, Network: file, NetworkDir: t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q", tt.name, tt.content, err, tt.want)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s %s: plugins were installed", tt.name, tt.content)
		}
	}
}

// TestNetworkAfterAKill: what a killed installation has left goes, and no runtime reads it meanwhile.
func TestNetworkAfterAKill(t *testing.T) {
	networks, file := t.TempDir(), writeNetwork(t, filepath.Join(t.TempDir(), "99-pods.conflist"), oneNetwork)
	writeNetwork(t, filepath.Join(networks, networkStaging+"99-pods"), "{")
	mustInstall(t, Options{Dir: t.TempDir(), From: release(t, ""), Network: file, NetworkDir: networks})
	assertTree(t, networks, "99-pods.conflist -rw-r--r-- "+sum(t, file))
}
