package main

import (
	"encoding/json"
	"testing"

	"github.com/cnibox/cnibox/plugins/known"
)

func TestList(t *testing.T) {
	table := inProcess("list")
	assertEqual(t, "exit code", table.code, 0)
	assertContains(t, table.stdout, "NAME", "KIND", "SUMMARY")
	var rows []listed
	if err := json.Unmarshal([]byte(inProcess("list", "--json").stdout), &rows); err != nil {
		t.Fatal(err)
	}
	assertEqual(t, "plugins", len(rows), len(known.Plugins))
	for i, p := range known.Plugins {
		assertEqual(t, "row", rows[i], listed{p.Name, string(p.Kind), p.Summary})
		assertContains(t, table.stdout, p.Name, p.Summary)
	}
}
