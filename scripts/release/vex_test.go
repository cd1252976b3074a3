package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestVEX checks a small program against a small list: it calls what one vulnerability is in, and lacks the package of the other.
func TestVEX(t *testing.T) {
	list, err := filepath.Abs("testdata/vulndb")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("VULNDB", "file://"+list)
	r := Release{Version: "v1.2.3", Time: modified, Source: "testdata/vex", Out: t.TempDir(), named: map[string]bool{}}
	if err := vex(r); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.Out, "cnibox-v1.2.3.openvex.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Context    string `json:"@context"`
		Timestamp  string
		Statements []struct {
			Vulnerability struct{ Name string }
			Products      []struct {
				ID string `json:"@id"`
			}
			Status, Justification string
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Context != "https://openvex.dev/ns/v0.2.0" || doc.Timestamp != "2023-11-14T22:13:20Z" {
		t.Errorf("context %s, time %s", doc.Context, doc.Timestamp)
	}
	found := map[string]string{}
	for _, s := range doc.Statements {
		found[s.Vulnerability.Name] = s.Status + " " + s.Justification
		if len(s.Products) != 1 || s.Products[0].ID != "pkg:golang/github.com/cnibox/cnibox@v1.2.3" {
			t.Errorf("%s is of %v", s.Vulnerability.Name, s.Products)
		}
	}
	if len(found) != 2 || found["GO-2026-9001"] != "affected " || found["GO-2026-9002"] != "not_affected vulnerable_code_not_present" {
		t.Errorf("found %v in\n%s", found, text)
	}
}

func TestNoVEX(t *testing.T) {
	t.Setenv("VULNDB", "")
	r := Release{Version: "v1.2.3", Out: t.TempDir(), named: map[string]bool{}}
	if err := vex(r); err != nil {
		t.Fatal(err)
	}
	if made, _ := os.ReadDir(r.Out); len(made) > 0 {
		t.Errorf("without a list there is %s", made[0])
	}
}
