package cache

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
)

func TestMayHave(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a-own-eth0":   `{"kind":"cniCacheV1","containerId":"own"}`,
		"a-b-c-1-eth0": `{"kind":"cniCacheV1","containerId":"b-c"}`, // interface 1-eth0
		"a-torn-eth0":  `{"kind":"cniC`,
		"a-old-eth0":   `{"cniVersion":"0.4.0"}`,
		"a-empty-eth0": ``,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Open(dir, plugin.Key{Network: "a", ContainerID: "own", IfName: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"own": false, "b-c": true, "b": false, "c": false, "c-1": false, "torn": true, "old": true, "empty": true, "none": false} {
		if got := c.MayHave("x", id); got != want {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
}

func TestNoCache(t *testing.T) {
	if c, err := Open(t.TempDir()+"/none", plugin.Key{}); c != nil || err != nil {
		t.Error(c, err)
	}
	if _, err := Open("/dev/null", plugin.Key{}); err == nil {
		t.Error("a file is taken for a cache")
	}
}

func TestContainers(t *testing.T) {
	for name, want := range map[string][]string{"web_eth0": {"web"}, "a_b_c": {"a", "a_b"}, "_x": nil, "x_": nil, "x": nil} {
		if got := Containers(name, "_"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
