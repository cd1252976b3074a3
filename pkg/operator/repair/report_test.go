package repair

import (
	"encoding/json"
	"testing"
)

// TestFindingJSON prints what readers of reports have always read, and what all findings have.
func TestFindingJSON(t *testing.T) {
	r := newReport(attempts("11")[0].Attachment)
	r.Plugins = append(r.Plugins, Finding{Finding: Broken.Found(nil, "a rule is gone"), Plugin: "portmap", PutBack: []string{"a rule"}})
	r.Plugins[0].Left, r.Plugins[0].Remedy = "a port", "free it"
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var read struct{ Plugins []map[string]any }
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	f := read.Plugins[0]
	for key, want := range map[string]any{"plugin": "portmap", "found": "a rule is gone", "summary": "a rule is gone", "left": "a port", "remedy": "free it", "code": "attachment-broken", "severity": "error"} {
		if f[key] != want {
			t.Errorf("%s is %v, want %v", key, f[key], want)
		}
	}
	if list, _ := f["putBack"].([]any); len(list) != 1 {
		t.Errorf("%s", text)
	}
}
