package list

import (
	"encoding/json"
	"testing"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui/uitest"
	"github.com/cnibox/cnibox/plugins/known"
)

func TestList(t *testing.T) {
	table := uitest.Run(New(), "list")
	uitest.AssertEqual(t, "exit code", table.Code, 0)
	uitest.AssertContains(t, table.Stdout, "NAME", "KIND", "SUMMARY")
	var rows []listed
	if err := json.Unmarshal([]byte(uitest.Run(New(), "list", "--json").Stdout), &rows); err != nil {
		t.Fatal(err)
	}
	uitest.AssertEqual(t, "plugins", len(rows), len(known.Plugins))
	for i, p := range known.Plugins {
		uitest.AssertEqual(t, "row", rows[i], listed{p.Name, string(p.Kind), p.Summary})
		uitest.AssertContains(t, table.Stdout, p.Name, p.Summary)
	}
}
