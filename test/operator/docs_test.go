package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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
	guides := map[string]map[string][]string{}
	for _, guide := range []string{"agent", "dropped", "troubleshooting"} {
		guides[guide] = examplesOf(t, "../../docs/operate/"+guide+".md", "\n## ")
	}
	pages, err := filepath.Glob("../../docs/operate/cnictl/*.md")
	if err != nil || len(pages) < 15 {
		t.Fatalf("cnictl has %d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		guides["cnictl/"+strings.TrimSuffix(filepath.Base(page), ".md")] = examplesOf(t, page, "# cnictl ")
	}
	for guide, sections := range guides {
		for title, commands := range sections {
			t.Run(guide+"/"+title, func(t *testing.T) {
				t.Parallel()
				o := newOperator(t)
				o.must("add", "demo", o.host.NewPod(t, "web").Path(), "--id", "web", "--publish", "8080:80")
				gone, _ := o.attach("gone")
				gone.Delete(t)
				if guide == "agent" {
					o.startAgent()
				}
				for _, command := range commands {
					o.example(command)
				}
			})
		}
	}
}

// examplesOf returns the commands that a page shows, by section; mark is what sections begin with.
func examplesOf(t *testing.T, page, mark string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```console\n(.*?)```")
	sections := map[string][]string{}
	for _, section := range strings.Split(string(text), mark) {
		title, _, _ := strings.Cut(section, "\n")
		for _, m := range block.FindAllStringSubmatch(section, -1) {
			for line := range strings.Lines(m[1]) {
				if command, ok := strings.CutPrefix(line, "$ "); ok {
					sections[title] = append(sections[title], strings.TrimSpace(command))
				}
			}
		}
	}
	return sections
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
	page, err := os.ReadFile("../../docs/operate/agent.md")
	if err != nil {
		t.Fatal(err)
	}
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
			if !strings.Contains(string(page), m[1]) {
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
		if !strings.Contains(string(page), "`"+key+"`") {
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
	script := exec.Command("sh", "-c", command+"\n[ $? = "+strings.TrimSpace(code)+" ]")
	script.Env = append(os.Environ(), "PATH="+filepath.Dir(netlab.Cnictl(o))+":"+os.Getenv("PATH"))
	script.Dir = o.TempDir()
	if out, err := o.host.Output(script); err != nil {
		o.Errorf("$ %s\n%v\n%s", line, err, out)
	}
}

// eventually waits until a command line of the shell succeeds.
func (o *operator) eventually(line string) {
	o.Helper()
	netlab.Eventually(o, func() error {
		cmd := o.host.Command("sh", "-c", line)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(netlab.Cnictl(o))+":"+os.Getenv("PATH"))
		if out, err := o.host.Output(cmd); err != nil {
			return fmt.Errorf("%s\n%w\n%s", line, err, out)
		}
		return nil
	})
}
