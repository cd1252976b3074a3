package plugins_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/schema"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/known"
)

var update = flag.Bool("update", false, "write the schemas and the manual's tables of keys")

// TestSchemas compares schemas/ with what the plugins declare.
func TestSchemas(t *testing.T) {
	files := schema.Files(known.Plugins)
	for name, s := range files {
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(s); err != nil {
			t.Fatal(err)
		}
		isUpToDate(t, "../schemas/"+name, text.Bytes())
	}
	there, err := filepath.Glob("../schemas/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range there {
		if _, ok := files[filepath.Base(path)]; !ok {
			t.Errorf("%s is no schema of ours: delete it", path)
		}
	}
}

// tables matches the tables of keys on a page, which end at the first line that is none of theirs.
var tables = regexp.MustCompile(`(?s)(<!-- keys: made from plugins/[^>]*-->\n).*?(<!-- end of keys -->\n)`)

// TestPages compares the tables of keys on the plugins' pages with what the plugins declare.
func TestPages(t *testing.T) {
	for _, row := range known.Plugins {
		path := "../docs/plugins/" + row.Name + ".md"
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		made := schema.Page(row.Plugin.(plugin.Configured).Keys())
		if !tables.Match(page) {
			t.Errorf("%s has no tables of keys between their marks", path)
			continue
		}
		isUpToDate(t, path, tables.ReplaceAll(page, []byte("${1}"+strings.ReplaceAll(made, "$", "$$")+"${2}")))
	}
}

// isUpToDate compares a file with what it should be, or makes it so.
func isUpToDate(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(path); err != nil || !bytes.Equal(is, want) {
		t.Errorf("%s is not what the plugins declare (%v): run make schemas", path, err)
	}
}
