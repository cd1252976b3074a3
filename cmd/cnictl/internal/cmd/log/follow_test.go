package log

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// TestFollow gets each call once, while the log is rotated, turned off and on.
func TestFollow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if err := calllog.On(dir, calllog.MinSize); err != nil {
		t.Fatal(err)
	}
	n := 0
	call := func() {
		r := &plugin.Request{Command: plugin.Del, Key: plugin.Key{ContainerID: fmt.Sprint(n)}}
		calllog.Begin(dir).End("demo", r, nil, errors.New(strings.Repeat("long ", 100)), "")
		n++
	}
	call()
	f, err := Follow(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := 0
	expect := func(when string) {
		t.Helper()
		for seen < n { // what was written at once may come in parts
			list, err := f.Next()
			if err != nil {
				t.Fatal(when, err)
			}
			for _, c := range list {
				if c.ContainerID != fmt.Sprint(seen) {
					t.Fatalf("%s: call %s, want %d", when, c.ContainerID, seen)
				}
				seen++
			}
		}
	}
	expect("at first")
	call()
	expect("one more")
	for range 100 { // some files full
		call()
		expect("while it is rotated")
	}
	if _, err := os.Stat(filepath.Join(dir, "calls.jsonl.1")); err != nil {
		t.Error("it was not rotated: ", err)
	}
	call()
	if err := errors.Join(calllog.Off(dir), calllog.On(dir, calllog.MinSize)); err != nil {
		t.Fatal(err)
	}
	call()
	expect("off and on")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if list, err := f.Next(); err == nil || len(list) > 0 {
		t.Errorf("the directory is gone: %v, %v", list, err)
	}
}

// TestFollowNothing returns at once when it is asked first.
func TestFollowNothing(t *testing.T) {
	f, err := Follow(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if list, err := f.Next(); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}
