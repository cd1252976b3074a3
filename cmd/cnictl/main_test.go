package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// script is a plugin that does as the files beside it say, and writes down how it was called.
const script = `#!/bin/sh
dir=${0%/*} verb=$CNI_COMMAND
echo "${0##*/} $verb $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME${CNI_ARGS:+ $CNI_ARGS}" >>"$dir/log"
cat >"$dir/stdin.$verb"
if [ -f "$dir/hook.$verb" ]; then . "$dir/hook.$verb"; fi
if [ -f "$dir/fail.$verb" ]; then cat "$dir/fail.$verb"; exit 1; fi
if [ "$verb" = ADD ]; then cat "$dir/result"; fi
`

// result is what the script prints on ADD.
const result = `{
    "cniVersion": "1.1.0",
    "interfaces": [{"name": "veth1", "mac": "02:00:00:00:00:02"}, {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/web"}],
    "ips": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1", "interface": 1}],
    "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.2.1"}]
}`

// demo is a network of the script.
const demo = `{
  "cniVersion": "1.1.0", "name": "demo",
  "plugins": [{"type": "fake", "capabilities": {"portMappings": true}}, {"type": "second"}]
}`

// bench is a host with a network and plugins on it that only pretend.
type bench struct {
	t    *testing.T
	host *netlab.Host
	conf string // --conf-dir
	bin  string // --bin-dir
	env  []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, host: netlab.NewHost(t), conf: t.TempDir(), bin: t.TempDir()}
	b.write(b.conf, "10-demo.conflist", demo)
	b.write(b.bin, "result", result)
	for _, name := range []string{"fake", "second"} {
		b.write(b.bin, name, script)
	}
	b.env = append(os.Environ(), "NETCONFPATH="+b.conf, "CNI_PATH="+b.bin)
	return b
}

func (b *bench) write(dir, name, content string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
		b.t.Fatal(err)
	}
}

// failing makes a verb of the plugins fail with an error document.
func (b *bench) failing(verb string) {
	b.t.Helper()
	b.write(b.bin, "fail."+verb, `{"cniVersion":"1.1.0","code":11,"msg":"the pool is busy","details":"wait a little"}`)
}

// outcome is what came of a call of cnictl.
type outcome struct {
	code           int
	stdout, stderr string
}

func (b *bench) command(args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	b.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := b.host.Command(netlab.Cnictl(b.t), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = b.env, &stdout, &stderr
	return cmd, &stdout, &stderr
}

func (b *bench) cnictl(args ...string) outcome {
	b.t.Helper()
	cmd, stdout, stderr := b.command(args...)
	err := b.host.Run(cmd)
	if cmd.ProcessState == nil {
		b.t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func (b *bench) must(args ...string) outcome {
	b.t.Helper()
	out := b.cnictl(args...)
	if out.code != 0 {
		b.t.Fatalf("cnictl %q: exit code %d\n%s%s", args, out.code, out.stdout, out.stderr)
	}
	return out
}

// log returns how the plugins were called, and forgets it.
func (b *bench) log() []string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.bin, "log"))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(b.bin, "log")); err != nil {
		b.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// verbs returns plugin and verb of each call in the log.
func (b *bench) verbs() string {
	b.t.Helper()
	var verbs []string
	for _, line := range b.log() {
		fields := strings.Fields(line)
		verbs = append(verbs, fields[0]+" "+fields[1])
	}
	return strings.Join(verbs, ", ")
}

// stdin returns the configuration that a plugin got last for a verb.
func (b *bench) stdin(verb string) map[string]any {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.bin, "stdin."+verb))
	if err != nil {
		b.t.Fatal(err)
	}
	return decode(b.t, string(text))
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return document
}

func assertContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

func assertEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
