package operator

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestAgentRestart has the agent take its socket from who holds it, as systemd does, and be stopped and started while clients come: they wait,
// and all are answered.
func TestAgentRestart(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.attach("web")
	const path = "/run/cnibox-agent/agent.sock"
	var socket *os.File
	o.host.Do(func() {
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		if socket, err = l.(*net.UnixListener).File(); err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	})
	defer socket.Close()
	answers := make(chan string)
	stop := make(chan struct{})
	clients := func() {
		client := &http.Client{Timeout: netlab.Patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
			o.host.Do(func() { c, err = net.Dial("unix", path) })
			return c, err
		}}}
		for {
			select {
			case <-stop:
				close(answers)
				return
			default:
			}
			answer, err := client.Get("http://localhost/status")
			if err != nil {
				answers <- err.Error()
				continue
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			answers <- answer.Status
		}
	}
	go clients()
	for range 10 {
		cmd := o.host.Command("sh", "-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec "+netlab.Cnictl(t)+" agent")
		var log strings.Builder
		cmd.Stderr, cmd.Env, cmd.ExtraFiles = &log, os.Environ(), []*os.File{socket}
		if err := o.host.Start(cmd); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if a := <-answers; a != "200 OK" {
				t.Errorf("a client: %s", a)
			}
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for running := true; running; {
			select {
			case a := <-answers:
				if a != "200 OK" {
					t.Errorf("a client as the agent stops: %s", a)
				}
			case err := <-ended:
				running = false
				if err != nil {
					t.Errorf("%v\n%s", err, log.String())
				}
			}
		}
	}
	socket.Close()
	close(stop)
	for range answers {
	}
}
