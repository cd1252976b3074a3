package contivk8s

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

func TestIsOfProcess(t *testing.T) {
	for path, want := range map[string]bool{
		"/proc/7/ns/net": true, "/proc/4711/ns/net": true, "/proc//ns/net": false, "/proc/self/ns/net": false, "/proc/7/ns/mnt": false,
		"/proc/7/task/8/ns/net": false, "/proc/7/fd/3": false, "/run/netns/web": false, "/x/proc/7/ns/net": false, "": false, "/proc/7": false,
	} {
		if got := isOfProcess(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestPathOfGone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file") // on which a namespace was mounted
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): filepath.Join(dir, "none"), file: file, "/proc/self/ns/net": "", "": "",
	} {
		if got := pathOfGone(path); got != want {
			t.Errorf("%q: %q", path, got)
		}
	}
}

// The daemon's answers are told apart; test/conformance has which is which.
func FuzzFailureIn(f *testing.F) {
	for _, body := range []string{"", "{}", `{"result":1,"errmsg":"Error creating EP","errinfo":"Err: x"}`, `{"result":7}`, `{"result":1e300}`, `{"endpointid":"c1"}`} {
		f.Add(500, []byte(body))
		f.Add(200, []byte(body))
	}
	f.Add(503, []byte(`{"errmsg":"busy"}`))
	f.Fuzz(func(t *testing.T, code int, body []byte) {
		err := failureIn(contiv.Answer{Code: code, Status: "x", Body: body}, "/run/s")
		if code != 200 && err == nil {
			t.Errorf("%d %q is taken for success", code, body)
		}
		if err == nil {
			return
		}
		e := plugin.AsError(err)
		isOwn := e.Code >= codeOther && e.Details != ""
		says, _ := contiv.ParseResponse(body)
		isDaemons := e.Code == uint(says.Result) || e.Code == 11
		if e.Msg == "" || e.Msg == "Contiv:" || !isOwn && !isDaemons {
			t.Errorf("%d %q is the error %d %q %q", code, body, e.Code, e.Msg, e.Details)
		}
	})
}
