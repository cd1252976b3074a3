package operator

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestExamples runs what the guide shows: each line behind a "$ " in a block marked console, section by section, on a node with the network
// demo, a container web with a published port, and one that is gone. `# 1` behind a command is the exit code that it has.
func TestExamples(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/cnictl.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```console\n(.*?)```")
	for _, section := range strings.Split(string(guide), "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")
		var commands []string
		for _, m := range block.FindAllStringSubmatch(section, -1) {
			for line := range strings.Lines(m[1]) {
				if command, ok := strings.CutPrefix(line, "$ "); ok {
					commands = append(commands, strings.TrimSpace(command))
				}
			}
		}
		if commands == nil {
			continue
		}
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			o.must("add", "demo", o.host.NewPod(t, "web").Path(), "--id", "web", "--publish", "8080:80")
			gone, _ := o.attach("gone")
			gone.Delete(t)
			for _, command := range commands {
				o.example(command)
			}
		})
	}
}

// example runs a line of the guide, with the tools that are tested.
func (o *operator) example(line string) {
	o.Helper()
	command, code, ok := strings.Cut(line, "# ")
	if !ok {
		code = "0"
	}
	script := exec.Command("sh", "-c", command+"\n[ $? = "+strings.TrimSpace(code)+" ]")
	script.Env = append(os.Environ(), "PATH="+filepath.Dir(netlab.Cnictl(o))+":"+os.Getenv("PATH"))
	script.Dir = o.TempDir()
	if out, err := o.host.Output(script); err != nil {
		o.Errorf("$ %s\n%v\n%s", line, err, out)
	}
}
