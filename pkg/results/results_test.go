package results

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

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

// What is not known is in use.
func TestKnownEnded(t *testing.T) {
	dir := t.TempDir()
	key := plugin.Key{Network: "a", ContainerID: "b", IfName: "eth0"}
	file := filepath.Join(dir, "a-b-eth0")
	plain := filepath.Join(dir, "plain")
	loop := filepath.Join(dir, "loop")
	linked := filepath.Join(dir, "linked")
	if err := errors.Join(os.WriteFile(plain, nil, 0o600), os.Symlink("loop", loop), os.Symlink("/proc/self/ns/net", linked)); err != nil {
		t.Fatal(err)
	}
	result := func(id, netns string) string {
		return `{"kind":"cniCacheV1","networkName":"a","containerId":"` + id + `","ifName":"eth0","netns":"` + netns + `"}`
	}
	old := func(ifName, netns string) string { // as libcni before 1.2 writes it
		return `{"kind":"cniCacheV1","networkName":"a","containerId":"b","ifName":"eth0","result":{"interfaces":[{"name":"cni0"},{"name":"` + ifName + `","sandbox":"` + netns + `"}]}}`
	}
	for _, test := range []struct {
		text string
		want bool
	}{
		{old("eth0", "/run/netns/none"), true},
		{old("eth0", "/proc/self/ns/net"), false},
		{old("eth1", "/run/netns/none"), false},
		{old("eth0", ""), false},
		{result("b", "/run/netns/none"), true},
		{result("b", plain), true},
		{result("b", "/proc/self/ns/net"), false},
		{result("b", loop), false},
		{result("b", linked), false},
		{result("b", ""), false},
		{result("other", "/run/netns/none"), false},
		{"null", false}, {"", false}, {"{", false}, {"[]", false},
	} {
		written := time.Now().Add(-time.Hour)
		given := written.Add(-time.Second)
		if err := errors.Join(os.WriteFile(file, []byte(test.text), 0o600), os.Chtimes(file, written, written)); err != nil {
			t.Fatal(err)
		}
		if got, replaced := KnownEnded(dir, key, given, ""); got != test.want || replaced { // nothing that is mounted is there
			t.Errorf("%s: ended %v, replaced %v", test.text, got, replaced)
		}
		if gone, _ := KnownGone(dir, key); gone != test.want {
			t.Errorf("%s: gone %v", test.text, gone)
		}
		if gone, replaced := KnownEnded(dir, key, written.Add(time.Second), ""); gone || replaced {
			t.Errorf("%s: though the result is older", test.text)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if gone, replaced := KnownEnded(dir, key, time.Now(), ""); gone || replaced {
		t.Error("without a result")
	}
}
