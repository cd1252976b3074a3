package delegate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// script makes an external plugin of a shell script, which finds its own directory in $DIR.
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

// A namespace that is gone for us stays what the runtime said it is: the delegate looks itself.
func TestExternalGetsTheRuntimesNamespace(t *testing.T) {
	d, dir := script(t, `test "$CNI_NETNS" = /run/netns/gone`)
	t.Setenv("CNI_NETNS", "/run/netns/gone")
	r := newRequest(t, plugin.Del, dir)
	r.Netns = ""
	if err := d.Del(t.Context(), r); err != nil {
		t.Error("it gets another one: ", err)
	}
}

// TestFailure is about errors that another program prints in an unusual form. Rows of the contract have the usual ones.
func TestFailure(t *testing.T) {
	const none = "plugin /p failed without a CNI error: exit status 1"
	for printed, want := range map[string]types.Error{
		`{"msg": "no code"}`:           {Code: 999, Msg: "no code"},
		`{"code": -7, "msg": "odd"}`:   {Code: 999, Msg: "odd"},
		`{"ips": []}`:                  {Code: 999, Msg: none, Details: "it printed on stderr: oh"},
		`{"code": "x", "msg": "y"}`:    {Code: 999, Msg: none, Details: "it printed on stderr: oh"},
		`{"code": 11, "details": "x"}`: {Code: 999, Msg: none, Details: "it printed on stderr: oh"},
	} {
		if got := plugin.AsError(failure("/p", errors.New("exit status 1"), []byte(printed), "oh\n")); *got != want {
			t.Errorf("%s: %#v, want %#v", printed, *got, want)
		}
	}
}

func TestExternalResultCannotBeUsed(t *testing.T) {
	d, dir := script(t, `test $CNI_COMMAND != ADD || echo '{"ips": 7}'`)
	_, err := d.Add(t.Context(), newRequest(t, plugin.Add, dir))
	if err == nil || plugin.AsError(err).Code != types.ErrDecodingFailure || !strings.Contains(err.Error(), dir) || plugin.AsError(err).Details == "" {
		t.Errorf("%#v", err)
	}
}

func TestExternalCannotBeExecuted(t *testing.T) {
	d, dir := script(t, "")
	path := filepath.Join(dir, "host-local")
	if err := os.WriteFile(path, []byte("\x7fELF, but no more"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Del(t.Context(), newRequest(t, plugin.Del, dir)); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "exec format error") {
		t.Errorf("error %v", err)
	}
}

// A plugin that is older than a verb is forgiven, and nothing else is.
func TestExternalOlderThanTheVerb(t *testing.T) {
	for says, forgiven := range map[string]bool{
		`{"code": 4, "msg": "unknown CNI_COMMAND: GC"}`:                   true,
		`{"code": 50, "msg": "unknown CNI_COMMAND"}`:                      false,
		`{"code": 4, "msg": "required env variables [CNI_PATH] missing"}`: false,
		``: false,
	} {
		d, dir := script(t, `echo '`+says+`'; exit 1`)
		status, gc, check := newRequest(t, plugin.Status, dir), newRequest(t, plugin.GC, dir), newRequest(t, plugin.Check, dir)
		for verb, err := range map[string]error{"STATUS": d.Status(t.Context(), status), "GC": d.GC(t.Context(), gc)} {
			if (err == nil) != forgiven {
				t.Errorf("%s of %s: %v", verb, says, err)
			}
		}
		if d.Mend(t.Context(), check, nil) == nil { // it is as old as the versions that have it
			t.Errorf("CHECK of %s is forgiven", says)
		}
	}
}

// A plugin that finishes when a call is cancelled has done what it says, and one that says why it stopped is heard.
func TestExternalFinishesWhenCancelled(t *testing.T) {
	for says, want := range map[string]uint{
		`echo "{\"ips\": [{\"address\": \"10.88.0.2/16\"}]}"; exit 0`: 0,
		`echo "{\"code\": 11, \"msg\": \"stopped\"}"; exit 1`:         types.ErrTryAgainLater,
	} {
		d, dir := script(t, `test $CNI_COMMAND = ADD || exit 1; trap '`+says+`' TERM; : >"$DIR/ready"; while :; do sleep 0.01; done`)
		ctx, cancel := context.WithCancel(t.Context())
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
		if want == 0 && (err != nil || len(result.IPs) != 1) || want != 0 && (err == nil || plugin.AsError(err).Code != want) {
			t.Errorf("%s: Add = %+v, %v", says, result, err)
		}
	}
}

func TestExternalIsBeingReplaced(t *testing.T) {
	d, dir := script(t, "exit 0")
	file, err := os.OpenFile(filepath.Join(dir, "host-local"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	err = d.Del(t.Context(), newRequest(t, plugin.Del, dir))
	if err == nil {
		t.Skip("this kernel executes files that are being written, as 6.11 and 6.12 do")
	}
	if !strings.Contains(err.Error(), "text file busy") {
		t.Errorf("error %v", err)
	}
	time.AfterFunc(2*busyPause, func() { file.Close() })
	if err := d.Del(t.Context(), newRequest(t, plugin.Del, dir)); err != nil {
		t.Errorf("the file was free again: %v", err)
	}
}
