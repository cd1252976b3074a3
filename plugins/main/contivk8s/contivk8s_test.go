package contivk8s

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

func object(t *testing.T, text string) *conf.Object {
	t.Helper()
	o, err := conf.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestParse(t *testing.T) {
	long := "/" + strings.Repeat("x", 106)
	tests := []struct {
		text, socket string
		timeout      time.Duration
		err          string
	}{
		{`{}`, contiv.DefaultSocket, 60 * time.Second, ""},
		{`{"socket": "", "timeout": null}`, contiv.DefaultSocket, 60 * time.Second, ""},
		{`{"socket": "/run/s", "timeout": 1}`, "/run/s", time.Second, ""},
		{`{"socket": "` + long + `", "timeout": 200}`, long, 200 * time.Second, ""},
		{`{"socket": "` + long + `x"}`, contiv.DefaultSocket, 60 * time.Second, "socket"},
		{`{"socket": "s"}`, contiv.DefaultSocket, 60 * time.Second, "socket"},
		{`{"socket": "/a\u0000b"}`, contiv.DefaultSocket, 60 * time.Second, "socket"},
		{`{"socket": 7, "timeout": 5}`, contiv.DefaultSocket, 60 * time.Second, "socket"},
		{`{"timeout": 0, "socket": "/run/s"}`, "/run/s", 60 * time.Second, "timeout"},
		{`{"timeout": 201}`, contiv.DefaultSocket, 60 * time.Second, "timeout"},
		{`{"timeout": "5s"}`, contiv.DefaultSocket, 60 * time.Second, "timeout"},
	}
	for _, tt := range tests {
		c, err := parse(object(t, tt.text))
		switch {
		case tt.err == "" && (err != nil || c.socket != tt.socket || c.timeout != tt.timeout):
			t.Errorf("%s: %s, %v, error %v", tt.text, c.socket, c.timeout, err)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), `"`+tt.err+`"`)):
			t.Errorf("%s: error %v, want one about %q", tt.text, err, tt.err)
		}
		if c := locate(object(t, tt.text).Lenient()); c.socket != tt.socket || c.timeout != tt.timeout {
			t.Errorf("%s: DEL finds %s, %v", tt.text, c.socket, c.timeout)
		}
	}
}

func TestPodOf(t *testing.T) {
	const both = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0.x"
	tests := []struct{ args, err string }{
		{both, ""},
		{"IgnoreUnknown=1;X=1;" + both + ";K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=0815;", ""},
		{both + ";X=1", "X"},
		{both + ";X", `"X"`},
		{"K8S_POD_NAME=web", "K8S_POD_NAMESPACE"},
		{"K8S_POD_NAMESPACE=shop", "K8S_POD_NAME"},
		{both + ";K8S_POD_INFRA_CONTAINER_ID=c2", "K8S_POD_INFRA_CONTAINER_ID"},
		{both + `;K8S_POD_NAME=a"b`, "K8S_POD_NAME"},
		{both + ";K8S_POD_NAMESPACE=..", "K8S_POD_NAMESPACE"},
		{"", "K8S_POD_NAME"},
	}
	for _, tt := range tests {
		pod, namespace, err := podOf(&plugin.Request{Key: plugin.Key{ContainerID: "c1"}, Args: tt.args})
		switch {
		case tt.err == "" && (err != nil || pod != "web-0.x" || namespace != "shop"):
			t.Errorf("%s: %q, %q, %v", tt.args, pod, namespace, err)
		case tt.err != "" && (err == nil || plugin.AsError(err).Code != 4 || !strings.Contains(err.Error(), tt.err) || pod+namespace != ""):
			t.Errorf("%s: %q, %q, %v; want an error about %s", tt.args, pod, namespace, err, tt.err)
		}
	}
}

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

func TestErrorsOfTheWayMayPass(t *testing.T) {
	for _, err := range []error{
		unreachable(t.Context(), "/run/s", errors.New("x")), unreadable("/run/s", errors.New("x")), silent(t.Context(), "/run/s", errors.New("x")),
	} {
		if !plugin.IsTryAgain(err) {
			t.Errorf("%v has the code %d", err, plugin.AsError(err).Code)
		}
	}
	if plugin.IsTryAgain(nil) || plugin.IsTryAgain(errors.New("x")) {
		t.Error("anything may pass")
	}
}
