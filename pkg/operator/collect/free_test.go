package collect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

func TestFreeReleasesAddressesLast(t *testing.T) {
	b := newBench(t)
	b.AllValid = true
	b.ipam.held = [][]plugin.Held{{address(of("lost"), "10.1.0.9", old)}}
	b.main.held = [][]plugin.Held{{{Key: of("lost"), What: "rule"}}}
	r := b.plan()
	b.expect(r, "+net/lost/eth0 stops 0", "not on the list of what is valid")
	r.Free(t.Context(), r.Goes[0], b.Options)
	if r.Goes[0].Outcome != Removed || fmt.Sprint(b.released) != "[rule address 10.1.0.9]" {
		t.Errorf("%+v, released %q", r.Goes[0], b.released)
	}
	r.Free(t.Context(), r.Goes[0], b.Options)
	if len(b.released) != 2 {
		t.Error("it was released twice")
	}

	r = b.plan()
	b.result(of("lost"))
	r.Free(t.Context(), r.Goes[0], b.Options)
	if r.Goes[0].Outcome != Skipped || r.Goes[0].Reason != "it has a result by now" || len(b.released) != 2 {
		t.Errorf("%+v", r.Goes[0])
	}
	if err := os.Remove(node.PathOf(b.cache, of("lost"))); err != nil {
		t.Fatal(err)
	}
	b.main.refuses = errors.New("it can't")
	r = b.plan()
	r.Free(t.Context(), r.Goes[0], b.Options)
	if r.Goes[0].Outcome != Failed || r.Goes[0].Err() == nil || !strings.Contains(r.Goes[0].Reason, "release rule: it can't") || len(b.released) != 4 {
		t.Errorf("%+v, released %q", r.Goes[0], b.released)
	}
}

// TestFreeLooksAgain: what has changed since the plan is not touched.
func TestFreeLooksAgain(t *testing.T) {
	for want, change := range map[string]func(path, ns string) error{
		"removed":            func(string, string) error { return nil },
		"can't be looked at": func(_, ns string) error { return os.Symlink("ns", ns) },
		"not the one":        func(path, _ string) error { return os.Chtimes(path, old, old.Add(time.Second)) },
		"not the one that w": func(path, _ string) error {
			return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path), os.Chtimes(path, old, old))
		},
		"not the one that wa": func(path, _ string) error { return os.Remove(path) },
	} {
		t.Run(want, func(t *testing.T) {
			b := newBench(t)
			b.result(of("gone"))
			path, ns := node.PathOf(b.cache, of("gone")), filepath.Join(t.TempDir(), "ns")
			text, _ := os.ReadFile(path)
			b.write(filepath.Dir(path), filepath.Base(path), strings.Replace(string(text), "/proc/0/ns/net", ns, 1))
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
			r := b.plan()
			b.expect(r, "+net/gone/eth0 stops 0")
			if err := change(path, ns); err != nil {
				t.Fatal(err)
			}
			it := r.Goes[0]
			r.Free(t.Context(), it, b.Options)
			if isRemoved := want == "removed"; isRemoved != (it.Outcome == Removed) || isRemoved != (fmt.Sprint(b.made) == "[DEL gone main]") || !isRemoved && !strings.Contains(it.Reason, want) {
				t.Errorf("%s: %s, calls %q", it.Outcome, it.Reason, b.made)
			}
			if _, err := os.Stat(path); (err == nil) != (it.Outcome == Skipped && want != "not the one that wa") {
				t.Errorf("its result: %v", err)
			}
		})
	}
}

// TestFreeWhileItIsMadeAgain: an ADD comes while DEL is called. Its result stays, and what was not begun is left alone.
func TestFreeWhileItIsMadeAgain(t *testing.T) {
	b := newBench(t)
	first := b.cache
	b.result(of("gone"))
	b.cache = filepath.Join(t.TempDir(), "second")
	b.result(of("gone"))
	node.CacheDirs = []string{first, b.cache}
	r := b.plan()
	b.expect(r, "+net/gone/eth0 stops 0")
	b.do = func() error {
		for _, dir := range node.CacheDirs {
			if err := os.Chtimes(node.PathOf(dir, of("gone")), old, time.Now()); err != nil {
				return err
			}
		}
		return nil
	}
	b.Exec = func(string) invoke.Exec { return calls{made: &b.made, do: b.do} }
	r.Free(t.Context(), r.Goes[0], b.Options)
	if len(b.made) != 1 {
		t.Errorf("calls %q", b.made)
	}
	for _, dir := range node.CacheDirs {
		if _, err := os.Stat(node.PathOf(dir, of("gone"))); err != nil {
			t.Error(err)
		}
	}
}

// TestFreeTellsOfFailures: libcni's result stays for the next one.
func TestFreeTellsOfFailures(t *testing.T) {
	b := newBench(t)
	b.result(of("gone"))
	b.do = func() error { return errors.New("it is busy") }
	r := b.plan()
	r.Free(t.Context(), r.Goes[0], b.Options)
	r.Sweep(t.Context(), b.Options)
	if it := r.Goes[0]; it.Outcome != Failed || !strings.Contains(it.Reason, "remove gone/eth0 of network net: ") || !strings.Contains(it.Reason, "it is busy") {
		t.Errorf("%+v", it)
	}
	if _, err := os.Stat(node.PathOf(b.cache, of("gone"))); err != nil {
		t.Error(err)
	}
}

// TestSweep removes what a DEL has left, unless it may be somebody else's, or a new ADD is under way.
func TestSweep(t *testing.T) {
	rule, port := plugin.Held{Key: of("gone"), What: "rule"}, plugin.Held{Key: plugin.Key{ContainerID: "gone"}, What: "port"}
	lent := address(of("gone"), "10.1.0.9", old)
	other := plugin.Key{Network: "other", ContainerID: "gone", IfName: "eth0"}
	for name, c := range map[string]struct {
		change func(b *bench) // between plan and sweep
		want   string
	}{
		"left":            {func(*bench) {}, "[port rule address 10.1.0.9]"},
		"gone":            {func(b *bench) { b.main.held, b.ipam.held = nil, nil }, "[]"},
		"of another one":  {func(b *bench) { b.result(other) }, "[rule address 10.1.0.9]"},
		"of another ADD":  {func(b *bench) { b.begin(other) }, "[rule address 10.1.0.9]"},
		"of a new ADD":    {func(b *bench) { b.ipam.held = [][]plugin.Held{{address(of("gone"), "10.1.0.9", time.Now())}} }, "[]"},
		"with a result":   {func(b *bench) { b.result(of("gone")) }, "[]"},
		"somebody else's": {func(b *bench) { b.main.held = [][]plugin.Held{{{Key: of("new"), What: "rule"}}} }, "[address 10.1.0.9]"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.result(of("gone"))
			b.main.held, b.ipam.held = [][]plugin.Held{{rule, port}}, [][]plugin.Held{{lent}}
			r := b.plan()
			r.Free(t.Context(), r.Goes[0], b.Options)
			c.change(b)
			r.Sweep(t.Context(), b.Options)
			if got := fmt.Sprint(b.released); got != c.want || r.Goes[0].Outcome != Removed {
				t.Errorf("released %s, want %s; %+v", got, c.want, r.Goes[0])
			}
		})
	}
}
