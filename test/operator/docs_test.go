package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestExamples runs what the guides show: each line behind a "$ " in a block marked console, section by section, on a node with the network
// demo, a container web with a published port, and one that is gone. A page of a command of cnictl is one section. `# 1` behind a command is the
// exit code that it has. The agent's guide has an agent that runs.
func TestExamples(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/operate/cnictl/*.md")
	if err != nil || len(pages) < 15 {
		t.Fatalf("cnictl has %d pages: %v", len(pages), err)
	}
	for _, page := range append(pages, "../../docs/operate/agent.md", "../../docs/operate/dropped.md", "../../docs/operate/troubleshooting.md") {
		guide, mark := strings.TrimSuffix(strings.TrimPrefix(page, "../../docs/operate/"), ".md"), "\n## "
		if strings.HasPrefix(guide, "cnictl/") {
			mark = "# cnictl "
		}
		for _, section := range partsOf(read(t, page), mark) {
			t.Run(guide+"/"+section.title, func(t *testing.T) {
				t.Parallel()
				o := newOperator(t)
				o.must("add", "demo", o.host.NewPod(t, "web").Path(), "--id", "web", "--publish", "8080:80")
				gone, _ := o.attach("gone")
				gone.Delete(t)
				if guide == "agent" {
					o.startAgent()
				}
				for _, s := range section.steps {
					o.example(s.command)
				}
			})
		}
	}
}

// startAgent starts an agent that runs until the test ends, or is ended by it.
func (o *operator) startAgent(args ...string) {
	o.Helper()
	cmd := o.host.Command(netlab.Cnictl(o), append([]string{"agent"}, args...)...)
	cmd.Env = os.Environ()
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := o.host.Start(cmd); err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			o.Errorf("the agent ends: %v\n%s", err, log.String())
		}
	})
	o.eventually("cnictl agent status")
}

// TestAgentPage: the agent's guide has each line of its log, each flag, each metric, and each key of its status.
func TestAgentPage(t *testing.T) {
	t.Parallel()
	page := read(t, "../../docs/operate/agent.md")
	var sources []string
	for _, pattern := range []string{"../../pkg/operator/agent/*.go", "../../pkg/operator/agent/*/*.go", "../../cmd/cnictl/internal/cmd/agent/*.go"} {
		found, _ := filepath.Glob(pattern)
		sources = append(sources, found...)
	}
	seen := 0
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil || strings.HasSuffix(source, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`(?:(?:[Ll]og\.(?:Info|Warn|Error)|\.warn|count)\(|flags\.\w+\(&[\w.]+, )"([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			seen++
			if !strings.Contains(page, m[1]) {
				t.Errorf("docs/operate/agent.md does not have %q of %s", m[1], source)
			}
		}
	}
	if seen < 25 {
		t.Errorf("%d lines, flags and metrics are found in %d files", seen, len(sources))
	}
	o := newOperator(t)
	o.startAgent()
	var status map[string]any
	if err := json.Unmarshal([]byte(o.must("agent", "status", "--json")), &status); err != nil {
		t.Fatal(err)
	}
	for key := range status {
		if !strings.Contains(page, "`"+key+"`") {
			t.Errorf("docs/operate/agent.md does not have the key %q", key)
		}
	}
}

// example runs a line of the guide, with the tools that are tested.
func (o *operator) example(line string) {
	o.Helper()
	command, code, ok := strings.Cut(line, "# ")
	if !ok {
		code = "0"
	}
	if err := o.shell(probesWait(command) + "\n[ $? = " + strings.TrimSpace(code) + " ]"); err != nil {
		o.Errorf("$ %s\n%v", line, err)
	}
}

// eventually waits until a command line of the shell succeeds.
func (o *operator) eventually(line string) {
	o.Helper()
	netlab.Eventually(o, func() error { return o.shell(line) })
}

// shell runs a command line of the shell in a directory of its own. The error holds what it printed.
func (o *operator) shell(line string) error {
	cmd := o.host.Command("sh", "-c", line)
	cmd.Env, cmd.Dir = o.env(), o.TempDir()
	out, err := o.host.Output(cmd)
	if err != nil {
		err = fmt.Errorf("%s\n%w\n%s", line, err, out)
	}
	return err
}

// env is that of shells which find cnictl.
func (o *operator) env() []string {
	return append(os.Environ(), "PATH="+filepath.Dir(netlab.Cnictl(o))+":"+os.Getenv("PATH"))
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
