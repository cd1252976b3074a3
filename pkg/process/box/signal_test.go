package box

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// asPlugin makes the test binary a plugin when it is set.
const asPlugin = "BOX_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) == "" {
		os.Exit(m.Run())
	}
	b := &Box{Plugins: plugin.Table{{Name: "waiter", Plugin: &waiter{}}}}
	os.Exit(b.Main(OS()))
}

// waiter is a plugin that tells on standard error how far it is, and waits for
// its end (ADD) or for a line in the pipe that is its file 3 (DEL).
type waiter struct{ fake }

func (*waiter) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	for _, what := range []string{"link", "lease"} {
		undo.Push("take back "+what, func(ctx context.Context) error {
			fmt.Fprintln(os.Stderr, "taken back:", what)
			return ctx.Err()
		})
	}
	done := ctx.Done() // from now on signals are heard
	fmt.Fprintln(os.Stderr, "ready")
	<-done
	return nil, r.Step(ctx, "make the rules")
}

func (*waiter) Del(ctx context.Context, _ *plugin.Request) error {
	fmt.Fprintln(os.Stderr, "ready")
	if _, err := bufio.NewReader(os.NewFile(3, "pipe")).ReadString('\n'); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "finished")
	return ctx.Err()
}

// process is a plugin process.
type process struct {
	*exec.Cmd
	stdout bytes.Buffer
	stderr *bufio.Reader
	pipe   *os.File // the other end of its file 3
}

func start(t *testing.T, command string) *process {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	t.Cleanup(func() { write.Close() })
	p := &process{Cmd: exec.Command("/proc/self/exe"), pipe: write}
	p.Args = []string{"waiter"}
	p.Env = append(os.Environ(), asPlugin+"=1", "CNI_COMMAND="+command, "CNI_CONTAINERID=c0ffee", "CNI_IFNAME=eth0", "CNI_PATH=/",
		"CNI_NETNS=/proc/self/ns/net", "CNI_NETNS_OVERRIDE=1")
	p.Stdin = strings.NewReader(config)
	p.Stdout = &p.stdout
	p.ExtraFiles = []*os.File{read}
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stderr = bufio.NewReader(stderr)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	p.expect(t, "ready")
	return p
}

// expect reads the next line of the process's standard error.
func (p *process) expect(t *testing.T, want string) {
	t.Helper()
	line, err := p.stderr.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != want {
		t.Fatalf("standard error: %q, %v; want %q", line, err, want)
	}
}

func TestSignalUnwindsAdd(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := start(t, "ADD")
		if err := p.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		p.expect(t, "taken back: lease")
		p.expect(t, "taken back: link")
		var exit *exec.ExitError
		if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%v: %v, want exit code 1", s, err)
		}
		var d document
		if err := json.Unmarshal(p.stdout.Bytes(), &d); err != nil {
			t.Fatalf("%v: %v\n%s", s, err, &p.stdout)
		}
		if d.Code != 11 || d.Msg != "stopped before the step: make the rules" || !strings.HasPrefix(d.Details, "ended by signal "+s.String()) {
			t.Errorf("%v: error %+v", s, d)
		}
	}
}

func TestDelFinishesInSpiteOfSignals(t *testing.T) {
	p := start(t, "DEL")
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGTERM} {
		if err := p.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.pipe.WriteString("go on\n"); err != nil {
		t.Fatal(err)
	}
	p.expect(t, "finished")
	if err := p.Wait(); err != nil || p.stdout.Len() > 0 {
		t.Errorf("%v, printed %q", err, &p.stdout)
	}
}
