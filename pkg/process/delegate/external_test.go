package delegate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/request"
)

// script makes an external plugin of a shell script, which finds its own
// directory in $DIR.
func script(t *testing.T, body string) (d *Delegate, dir string) {
	t.Helper()
	dir = t.TempDir()
	text := "#!/bin/sh\nDIR='" + dir + "'\n" + body + "\n"
	if err := os.WriteFile(filepath.Join(dir, "host-local"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := Find(newRequest(t, plugin.Add, dir), "host-local")
	if err != nil {
		t.Fatal(err)
	}
	return d, dir
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A namespace that is gone for us stays what the runtime said it is: the
// delegate looks itself.
func TestExternalGetsTheRuntimesNamespace(t *testing.T) {
	d, dir := script(t, `echo "$CNI_NETNS" > "$DIR/netns"`)
	t.Setenv("CNI_NETNS", "/run/netns/gone")
	r := newRequest(t, plugin.Del, dir)
	r.Netns = ""
	if err := d.Del(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir, "netns"); got != "/run/netns/gone\n" {
		t.Errorf("CNI_NETNS=%q", got)
	}
}

func TestExternalFails(t *testing.T) {
	tests := []struct {
		name, body string
		want       types.Error // Msg and Details are parts
	}{
		{"with an error", `echo '{"cniVersion": "1.0.0", "code": 11, "msg": "pool is full", "details": "wait"}'; exit 1`, types.Error{Code: 11, Msg: "pool is full", Details: "wait"}},
		{"with a bare error", `echo '{"msg": "no code"}'; exit 1`, types.Error{Code: 999, Msg: "no code"}},
		{"with a code below zero", `echo '{"code": -7, "msg": "odd"}'; exit 1`, types.Error{Code: 999, Msg: "odd"}},
		{"without a word", `exit 3`, types.Error{Code: 999, Msg: "failed without a CNI error: exit status 3", Details: "it printed on stderr: nothing"}},
		{"with a word on stderr", `echo panic >&2; exit 2`, types.Error{Code: 999, Msg: "failed without a CNI error: exit status 2", Details: "it printed on stderr: panic"}},
		{"with something else on stdout", `echo '{"ips": []}'; exit 1`, types.Error{Code: 999, Msg: "failed without a CNI error: exit status 1"}},
		{"with an error of a wrong type", `echo '{"code": "x", "msg": "y"}'; exit 1`, types.Error{Code: 999, Msg: "failed without a CNI error: exit status 1"}},
		{"by a signal", `kill -9 $$`, types.Error{Code: 999, Msg: "failed without a CNI error: signal: killed"}},
	}
	for _, tt := range tests {
		for _, verb := range []string{"ADD", "DEL", "CHECK"} {
			t.Run(tt.name+" "+verb, func(t *testing.T) {
				d, dir := script(t, tt.body)
				err := run(d, plugin.Command(verb), newRequest(t, plugin.Command(verb), dir))
				var e *types.Error
				if !errors.As(err, &e) || e.Code != tt.want.Code || !strings.Contains(e.Msg, tt.want.Msg) || !strings.Contains(e.Details, tt.want.Details) {
					t.Errorf("error %#v\nwant %#v", err, tt.want)
				}
			})
		}
	}
}

func run(d *Delegate, c plugin.Command, r *plugin.Request) error {
	ctx := context.Background()
	switch c {
	case plugin.Add:
		_, err := d.Add(ctx, r)
		return err
	case plugin.Del:
		return d.Del(ctx, r)
	case plugin.Check:
		return request.Check(ctx, d.Plugin, r)
	case plugin.Status:
		return d.Status(ctx, r)
	default:
		return d.GC(ctx, r)
	}
}

func TestExternalCannotBeExecuted(t *testing.T) {
	d, dir := script(t, "")
	if err := os.WriteFile(filepath.Join(dir, "host-local"), []byte("\x7fELF, but no more"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := d.Del(context.Background(), newRequest(t, plugin.Del, dir))
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "host-local")) || !strings.Contains(err.Error(), "exec format error") {
		t.Errorf("error %v", err)
	}
}

// An ADD that can't be understood has failed, and is undone.
func TestExternalResultCannotBeUsed(t *testing.T) {
	tests := map[string]string{
		"nothing":         ``,
		"no JSON":         `echo done`,
		"two documents":   `echo '{}{}'`,
		"no result":       `echo '{"ips": 7}'`,
		"unknown version": `echo '{"cniVersion": "7.0.0"}'`,
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			d, dir := script(t, `echo $CNI_COMMAND >> "$DIR/calls"; test $CNI_COMMAND = ADD || exit 0; `+body)
			result, err := d.Add(context.Background(), newRequest(t, plugin.Add, dir))
			var e *types.Error
			if result != nil || !errors.As(err, &e) || e.Code != types.ErrDecodingFailure || !strings.Contains(e.Msg, "its result can't be used") || e.Details == "" {
				t.Errorf("Add = %v, %#v", result, err)
			}
			if calls := read(t, dir, "calls"); calls != "ADD\nDEL\n" {
				t.Errorf("calls %q, want ADD and DEL", calls)
			}
		})
	}
}

func TestExternalOlderThanTheVerb(t *testing.T) {
	const unknown = `echo '{"code": 4, "msg": "unknown CNI_COMMAND: '$CNI_COMMAND'"}'; exit 1`
	tests := []struct {
		name, body string
		ok         bool
	}{
		{"does not know it", unknown, true},
		{"knows it", `exit 0`, true},
		{"is not ready", `echo '{"code": 50, "msg": "no"}'; exit 1`, false},
		{"another error of the environment", `echo '{"code": 4, "msg": "required env variables [CNI_PATH] missing"}'; exit 1`, false},
		{"died", `exit 1`, false},
	}
	for _, tt := range tests {
		for _, verb := range []plugin.Command{plugin.Status, plugin.GC} {
			t.Run(tt.name+" "+string(verb), func(t *testing.T) {
				d, dir := script(t, tt.body)
				if err := run(d, verb, newRequest(t, verb, dir)); (err == nil) != tt.ok {
					t.Errorf("error %v", err)
				}
			})
		}
	}
	d, dir := script(t, unknown)
	if err := run(d, plugin.Check, newRequest(t, plugin.Check, dir)); err == nil {
		t.Error("CHECK is not forgiven: it is as old as the versions that have it")
	}
}

// A cancelled call lets the plugin clean up, and takes what it says for an
// answer.
func TestExternalIsCancelled(t *testing.T) {
	tests := []struct {
		name, onSignal string
		ok             bool
	}{
		{"and finishes", `echo '{"ips": [{"address": "10.88.0.2/16"}]}'; exit 0`, true},
		{"and tells why it stopped", `echo '{"code": 11, "msg": "stopped"}'; exit 1`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, dir := script(t, fmt.Sprintf("test $CNI_COMMAND = ADD || exit 0; trap '%s' TERM\n: > \"$DIR/ready\"\nwhile :; do sleep 0.01; done", strings.ReplaceAll(tt.onSignal, "'", `'\''`)))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ready := filepath.Join(dir, "ready")
			if err := unix.Mkfifo(ready, 0o600); err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = os.ReadFile(ready)
				cancel()
			}()
			result, err := d.Add(ctx, newRequest(t, plugin.Add, dir))
			if tt.ok && (err != nil || len(result.IPs) != 1) {
				t.Errorf("Add = %+v, %v; what it did is done", result, err)
			}
			var e *types.Error
			if !tt.ok && (!errors.As(err, &e) || e.Code != 11) {
				t.Errorf("error %#v", err)
			}
		})
	}
}

func TestExternalIsBeingReplaced(t *testing.T) {
	d, dir := script(t, "exit 0")
	file, err := os.OpenFile(filepath.Join(dir, "host-local"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	err = d.Del(context.Background(), newRequest(t, plugin.Del, dir))
	if err == nil {
		t.Skip("this kernel executes files that are being written, as 6.11 and 6.12 do")
	}
	if !strings.Contains(err.Error(), "text file busy") {
		t.Errorf("error %v", err)
	}
	time.AfterFunc(2*busyPause, func() { file.Close() })
	if err := d.Del(context.Background(), newRequest(t, plugin.Del, dir)); err != nil {
		t.Errorf("the file was free again: %v", err)
	}
}
