package bench

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The no-op plugin is the same in either language.
func TestNoOp(t *testing.T) {
	p := buildPrograms(t)
	inGo := filepath.Join(t.TempDir(), "noop")
	goBuild(t, ".", inGo, "./noop")
	const result = `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/16"}],"dns":{}}`
	for _, program := range []string{p.noop, inGo} {
		for _, test := range []struct{ command, config, want string }{
			{"ADD", `{"name":"n","prevResult":` + result + `,"type":"t"}`, result},
			{"ADD", `{"name":"n","type":"t"}`, `{"cniVersion":"1.0.0"}`},
			{"DEL", `{"name":"n","prevResult":` + result + `,"type":"t"}`, ""},
			{"CHECK", `{"name":"n","prevResult":` + result + `,"type":"t"}`, ""},
		} {
			cmd := exec.Command(program)
			cmd.Env = []string{"CNI_COMMAND=" + test.command}
			cmd.Stdin = strings.NewReader(test.config)
			out, err := cmd.Output()
			if err != nil || string(out) != test.want {
				t.Errorf("%s of %s: got %q, %v, want %q", test.command, test.config, out, err, test.want)
			}
		}
	}
}

func TestLaunch(t *testing.T) {
	p := buildPrograms(t)
	shell := exec.Command("sh", "-c", "cat; echo 1 2 >&2; test ! -e /proc/self/fd/3")
	var out strings.Builder
	shell.Stdin, shell.Stdout = strings.NewReader("handed on"), &out
	shell.Args[0] = shell.Path
	used, err := p.launch(shell)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != "handed on" {
		t.Errorf("the program printed %q", out.String())
	}
	if used.wall <= 0 || used.peak < 64<<10 || used.peak > 64<<20 {
		t.Errorf("it used %+v", used)
	}
	if _, err := p.launch(exec.Command("/bin/false")); err == nil {
		t.Error("a program that fails passes for one that does not")
	}
}
