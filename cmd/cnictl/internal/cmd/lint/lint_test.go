package lint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui/uitest"
)

// TestLintPage runs the examples of the manual's page, one after the other: what is found in the files that it shows, and how that is mended.
func TestLintPage(t *testing.T) {
	page, err := os.ReadFile("../../../../../docs/operate/lint.md")
	if err != nil {
		t.Fatal(err)
	}
	files := regexp.MustCompile("(?s)`([a-z0-9-]+\\.[a-z]+)`:\n\n```text\n(.*?)```").FindAllSubmatch(page, -1)
	examples := regexp.MustCompile("(?s)```console\n\\$ cnictl ([^\n]*)\n(.*?)```").FindAllSubmatch(page, -1)
	if files == nil || len(examples) == 0 {
		t.Fatal("the page shows no file, or no command")
	}
	t.Chdir(t.TempDir())
	for _, file := range files {
		write(t, string(file[1]), string(file[2]))
	}
	for _, e := range examples {
		command, code, _ := strings.Cut(string(e[1]), " # ")
		want := map[string]int{"": 0, "1": 1}[code]
		if out := uitest.Run(New(), strings.Fields(command)...); out != (uitest.Outcome{Code: want, Stdout: string(e[2])}) {
			t.Errorf("%s: %+v, want exit code %d", command, out, want)
		}
	}
	info, err := os.Stat("10-web.conflist")
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mended file has the mode %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(".*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(name, []byte(text), 0o640), os.Chmod(name, 0o640)); err != nil { // whatever the umask is
		t.Fatal(err)
	}
}

func TestLintOutputs(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "bad.conf", `{"cniVersion": "1.0.0", "name": "a", "type": "ptp"}`)
	write(t, "good.conf", `{"cniVersion": "1.0.0", "name": "a", "type": "bridge"}`)
	tests := []struct {
		args string
		code int
		says string
	}{
		{"lint good.conf", 0, "nothing is wrong; files: 1"},
		{"lint bad.conf", 1, "bad.conf:1:46: error ipam-missing"},
		{"lint good.conf bad.conf --json", 1, `"code": "ipam-missing"`},
		{"lint good.conf --json", 0, `"findings": []`},
		{"lint bad.conf --sarif", 1, `"ruleId": "ipam-missing"`},
		{"lint .", 1, "good.conf:1:33: warning network-name-twice"},
		{"lint", 2, "name a file, a directory, or -"},
		{"lint --json --sarif bad.conf", 2, "one of --json and --sarif"},
		{"lint none.conf", 1, "none.conf: no such file"},
		{"lint --fix -", 2, "name one in place of -"},
	}
	for _, tt := range tests {
		out := uitest.Run(New(), strings.Fields(tt.args)...)
		if out.Code != tt.code || !strings.Contains(out.Stdout+out.Stderr, tt.says) {
			t.Errorf("%s: %+v, want %d and %q", tt.args, out, tt.code, tt.says)
		}
		if machine := strings.Contains(tt.args, "--json ") || strings.HasSuffix(tt.args, "--sarif"); machine && out.Code != 2 && !json.Valid([]byte(out.Stdout)) {
			t.Errorf("%s: no JSON", tt.args)
		}
	}
}

// TestLintLink has --fix write through a link, and leave a file alone that needs nothing.
func TestLintLink(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "real", `{"cniVersion": "1.0", "name": "a", "type": "bridge"}`)
	if err := os.Symlink("real", "10-a.conf"); err != nil {
		t.Fatal(err)
	}
	if out := uitest.Run(New(), "lint", "--fix", "10-a.conf"); out.Code != 0 {
		t.Fatalf("%+v", out)
	}
	text, err := os.ReadFile("real")
	if to, lerr := os.Readlink("10-a.conf"); err != nil || lerr != nil || to != "real" || string(text) != `{"cniVersion": "1.0.0", "name": "a", "type": "bridge"}` {
		t.Errorf("%s, %v, %q, %v", text, err, to, lerr)
	}
}

// TestLintJSON prints what readers of findings have always read, and what all findings have.
func TestLintJSON(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "bad.conf", `{"cniVersion": "1.0.0", "name": "a", "type": "ptp"}`)
	var out struct{ Findings []map[string]any }
	if err := json.Unmarshal([]byte(uitest.Run(New(), "lint", "--json", "bad.conf").Stdout), &out); err != nil || len(out.Findings) != 1 {
		t.Fatalf("%v: %v", err, out)
	}
	f := out.Findings[0]
	if f["file"] != "bad.conf" || f["line"] != 1.0 || f["column"] != 46.0 || f["code"] != "ipam-missing" || f["severity"] != "error" || f["fixable"] != false ||
		f["message"] == nil || f["message"] != f["summary"] || f["fix"] != f["remedy"] || f["meaning"] == nil {
		t.Errorf("%v", f)
	}
}
