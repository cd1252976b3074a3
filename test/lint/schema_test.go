package lint

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/lint"
)

// bySchema are the findings that a schema can make, too.
var bySchema = []string{"wrong-type", "wrong-word", "wrong-form", "out-of-range", "unknown-key", "key-case", "missing-key",
	"name-missing", "name-invalid", "version-unknown", "plugins-missing", "type-missing", "ipam-missing", "ipam-ignored",
	"wrong-extension", "not-in-cnibox", "template"}

// beyondSchemas are files that schemas accept and lint refuses, by what is said of them.
var beyondSchemas = []struct{ file, why string }{
	{`\.300"`, "patterns of addresses let any number of three digits through"},
	{`\.0/33"|/129"`, "patterns of networks let any prefix length of three digits through"},
	{`^cnidev-host-device.*\.conf: good$|^crio-loopback-unnamed\.conf: good$`, "the schema of a plugin is for entries of lists, too, which need no name"},
	{`misspelled in the delegate$`, "flannel's delegate is any plugin's object"},
	{`host-local in the list$`, "the schema takes it for somebody else's plugin"},
	{`a rate without a burst$|no ranges$`, "a key is needed only if another one is there, or not there"},
}

// TestSchemas has a validator that others wrote read all files, the good ones and those with a mistake, as an editor does: it accepts a
// file if lint's findings that a schema can make are none, and refuses the others.
func TestSchemas(t *testing.T) {
	t.Parallel()
	var names, whats, texts []string
	add := func(name, what, text string) {
		if json.Valid([]byte(text)) {
			names, whats, texts = append(names, name), append(whats, what), append(texts, text)
		}
	}
	for _, dir := range []string{"good", "base"} {
		for name, text := range files(t, dir) {
			add(name, dir, text)
		}
	}
	for _, m := range mutations(t) {
		add(m.file, m.what, m.text)
	}
	accepted, refused := 0, 0
	for i, answer := range validate(t, names, texts) {
		var found []lint.Finding
		for _, f := range findingsIn(names[i], texts[i]) {
			if slices.Contains(bySchema, f.Code) {
				found = append(found, f)
			}
		}
		if answer.Valid && len(found) > 0 && slices.ContainsFunc(beyondSchemas, func(e struct{ file, why string }) bool {
			return regexp.MustCompile(e.file).MatchString(names[i] + ": " + whats[i])
		}) {
			continue
		}
		if answer.Valid != (len(found) == 0) {
			t.Errorf("%s: %s: the schema says %q, lint says\n%s", names[i], whats[i], answer.Errors, list(found))
		}
		if answer.Valid {
			accepted++
		} else {
			refused++
		}
	}
	t.Logf("%d files: %d accepted, %d refused, by both", len(texts), accepted, refused)
}

type answer struct {
	Valid  bool
	Errors []string
}

// validate asks Debian's python3-jsonschema. It takes the schema of conflists for those, and that of plugins for single ones.
func validate(t *testing.T, names, texts []string) (answers []answer) {
	type job struct {
		Text string `json:"text"`
		Main string `json:"main"`
	}
	jobs := make([]job, len(texts))
	for i, text := range texts {
		jobs[i] = job{text, "/conflist.json"}
		if strings.HasSuffix(names[i], ".conf") {
			jobs[i].Main = "/plugin.json"
		}
	}
	schemas, err := filepath.Abs("../../schemas")
	if err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(map[string]any{"schemas": schemas, "jobs": jobs})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", "validate.py")
	cmd.Stdin = bytes.NewReader(in)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python3 (does it have jsonschema? make setup): %v\n%s", err, &problems)
	}
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(texts) {
		t.Fatalf("%d answers for %d texts: %v", len(answers), len(texts), err)
	}
	return answers
}
