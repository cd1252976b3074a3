package project

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/known"
)

// TestKeysHaveRows makes sure that a row of conformance, or a test of etcd, has each key of each plugin: a key is a promise to users.
func TestKeysHaveRows(t *testing.T) {
	var rows []byte
	for _, folder := range []string{"conformance", "etcd"} {
		files, err := filepath.Glob("../" + folder + "/*_test.go")
		if err != nil || files == nil {
			t.Fatal("no rows found", err)
		}
		for _, file := range files {
			rows = append(rows, read(t, file)...)
		}
	}
	for _, p := range known.Plugins {
		configured, ok := p.Plugin.(plugin.Configured)
		if !ok {
			continue
		}
		for _, key := range configured.Keys().Own {
			if !regexp.MustCompile(`["\x60.]` + regexp.QuoteMeta(key.Name) + `\b`).Match(rows) {
				t.Errorf("%s: no row has the key %q", p.Name, key.Name)
			}
		}
	}
}
