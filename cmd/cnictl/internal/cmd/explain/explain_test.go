package explain

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/lint"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
	"github.com/cnibox/cnibox/pkg/operator/trace"
)

func ids(e *Explanation) (list []string) {
	for _, f := range e.Findings {
		list = append(list, f.Code)
	}
	return list
}

// TestMessages has each known error found in its own example, however the example is given, and looks at a node where nothing is.
func TestMessages(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range messages() {
		t.Run(k.ID, func(t *testing.T) {
			if seen[k.ID] || k.Means == "" || k.Do == "" || k.Look != "" && looks[k.Look] == nil {
				t.Error("the id is not unique, a text is missing, or nothing is called as look says")
			}
			seen[k.ID] = true
			for _, code := range k.Doctor {
				if doctor.Codes().Find(code) == nil {
					t.Errorf("doctor has no finding %s", code)
				}
			}
			document, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "code": 999, "msg": k.Example, "details": "do something"})
			if err != nil {
				t.Fatal(err)
			}
			logged := fmt.Sprintf("time=\"2024-02-15T20:28:32Z\" level=error msg=%q error=%q", "RunPodSandbox failed", "failed to setup network for sandbox \"11ce\": "+k.Example)
			for _, form := range []string{k.Example, string(document), "error: " + string(document) + " and more", fmt.Sprintf("msg=%q", document), logged, "first line\n" + k.Example + "\nlast line"} {
				e := Explain(form)
				if !slices.Contains(ids(e), k.ID) && !(k.Wraps && len(e.Findings) > 0) {
					t.Errorf("%v in\n%s", ids(e), form)
				}
				for i := range e.Findings {
					e.Findings[i].known = &Known{Look: e.Findings[i].known.Look} // doctor's part has a test of its own
				}
				e.LookAt(t.Context(), &node.Node{}, doctor.Options{})
			}
			if e := Explain(k.Example); e.Findings[0].Code != k.ID {
				t.Errorf("%s comes first", e.Findings[0].Code)
			}
		})
	}
	if len(seen) < 80 {
		t.Errorf("only %d errors are known", len(seen))
	}
}

// logged returns the lines of testdata/logs.txt, by what is known to be in them.
func logged(t *testing.T) map[string][]string {
	text, err := os.ReadFile("testdata/logs.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if id, line, found := strings.Cut(strings.TrimSpace(line), "\t"); found { // others are comments
			lines[id] = append(lines[id], line)
		}
	}
	return lines
}

// TestLogs finds what is known in lines of logs.
func TestLogs(t *testing.T) {
	n := 0
	for id, lines := range logged(t) {
		for _, line := range lines {
			n++
			quoted, err := json.Marshal(map[string]string{"MESSAGE": line})
			if err != nil {
				t.Fatal(err)
			}
			for _, form := range []string{line, string(quoted)} { // as journalctl -o json has it, too
				if e := Explain(form); len(e.Findings) == 0 || e.Findings[0].Code != id {
					t.Errorf("%v, want %s in\n%s", ids(e), id, form)
				}
			}
		}
	}
	if n < 60 {
		t.Errorf("there are only %d lines", n)
	}
}

// TestQuiet knows nothing of lines that are no errors of networking.
func TestQuiet(t *testing.T) {
	for _, line := range []string{
		`time="2023-12-08T14:08:19.088872786+08:00" level=info msg="Start subscribing containerd event"`,
		`I0301 09:12:44.103914    1881 kubelet.go:2347] "SyncLoop ADD" source="api" pods=["default/web-0"]`,
		`Oct 25 20:08:18 node1 nomad[6003]: client.driver_mgr.docker: created container: driver=docker container_id=6674`,
		`Normal  Pulled  2m  kubelet  Successfully pulled image "nginx" in 1.9s`,
		`DEBU[0000] Found CNI network podman (type=bridge) at /etc/cni/net.d/87-podman-bridge.conflist`,
		`Back-off restarting failed container`,
		`Error: ImagePullBackOff`,
		`OCI runtime exec failed: exec failed: unable to start container process: exec: "bash": executable file not found in $PATH: unknown`,
	} {
		if e := Explain(line); len(e.Findings) > 0 {
			t.Errorf("%v in %s", ids(e), line)
		}
	}
}

// TestSentences takes an argument that begins as a flag does, and is none, as a text.
func TestSentences(t *testing.T) {
	for _, c := range [][2][]string{
		{{"explain", "--dir is missing"}, {"explain", "--", "--dir is missing"}},
		{{"explain", "--elsewhere", "--dir is missing", "--json"}, {"explain", "--elsewhere", "--json", "--", "--dir is missing"}},
		{{"explain", "--conf-dir=/a b"}, {"explain", "--conf-dir=/a b"}},
		{{"explain", "--", "--dir is missing"}, {"explain", "--", "--dir is missing"}},
		{{"install", "--dir is missing"}, {"install", "--dir is missing"}},
		{{}, {}},
	} {
		if got := Sentences(c[0]); !slices.Equal(got, c[1]) {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

func TestExplain(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       *Explanation
		ids        string
	}{
		{name: "code", text: " 11\n", want: &Explanation{Code: 11}},
		{name: "the plugin's own code", text: "100", want: &Explanation{Code: 100}},
		{name: "unknown", text: "the cat sat on the mat", want: &Explanation{Message: "the cat sat on the mat"}},
		{name: "libcni's error", text: `plugin type="host-local" name="demo" failed (add): no IP addresses available in range set: 10.1.0.1-10.1.0.2`, ids: "pool-full",
			want: &Explanation{Message: `plugin type="host-local" name="demo" failed (add): no IP addresses available in range set: 10.1.0.1-10.1.0.2`, Plugin: "host-local", Network: "demo", Verb: "add"}},
		{name: "document behind libcni's words", text: `E0101 plugin type="portmap" failed (add): {"code": 7, "msg": "must be called as chained plugin", "details": "chain it"} end`, ids: "previous-result-missing",
			want: &Explanation{Message: `plugin type="portmap" failed (add): must be called as chained plugin`, Code: 7, Details: "chain it", Plugin: "portmap", Verb: "add"}},
		{name: "what cnictl prints", text: "cnictl add: host port 8080/tcp is already published by demo/web/eth0\n  details: end it\n  code:    11 (try again later)\n", ids: "port-published",
			want: &Explanation{Message: "cnictl add: host port 8080/tcp is already published by demo/web/eth0\n  details: end it\n  code:    11 (try again later)", Code: 11}},
		{name: "two errors", text: "failed to locate iptables\nno space left on device", ids: "iptables-missing disk-full",
			want: &Explanation{Message: "failed to locate iptables\nno space left on device"}},
		{name: "a document without an error", text: `{"name": "demo"}`, want: &Explanation{Message: `{"name": "demo"}`}},
		{name: "nothing", text: "", want: &Explanation{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := Explain(test.text)
			if got := strings.Join(ids(e), " "); got != test.ids {
				t.Errorf("findings %q, want %q", got, test.ids)
			}
			if known := e.CodeMeans != ""; known != (test.want.Code != 0) {
				t.Errorf("code %d means %q", e.Code, e.CodeMeans)
			}
			e.Findings, e.CodeMeans = nil, ""
			if fmt.Sprintf("%+v", e) != fmt.Sprintf("%+v", test.want) {
				t.Errorf("got  %+v\nwant %+v", e, test.want)
			}
		})
	}
}

// TestLike names the codes that may have been meant, the nearest first, of what is no code.
func TestLike(t *testing.T) {
	for text, want := range map[string]string{"bridge-dwn": "bridge-down", "mtu-above-upling\n": "mtu-above-uplink", "unknwn-key": "unknown-key", "bridge-down": "", "the bridge-dwn": "", "": ""} {
		e := Explain(text)
		if got := strings.Join(e.Like[:min(1, len(e.Like))], ""); got != want {
			t.Errorf("%q: %v, want %q first", text, e.Like, want)
		}
	}
}

// TestCodesOfFindings knows each code of doctor, repair, lint and trace, alone and as it is printed.
func TestCodesOfFindings(t *testing.T) {
	for _, c := range slices.Concat(doctor.Codes(), repair.Codes(), lint.Codes(), trace.Codes()) {
		for _, text := range []string{c.Name + "\n", "error " + c.Name + ": something", "a.conflist:3:5: warning " + c.Name + ": something", "cause  " + c.Name + ": something"} {
			e := Explain(text)
			says := func(f Finding) bool { return f.Code == c.Name && f.Meaning == c.Meaning && f.Severity == c.Severity }
			if !slices.ContainsFunc(e.Findings, says) {
				t.Errorf("%v in %q", ids(e), text)
			}
		}
	}
	for _, text := range []string{"the backend: it is gone", "error nosuch: it is gone", "error: rules-gone is not"} {
		if e := Explain(text); len(e.Findings) > 0 {
			t.Errorf("%v in %q", ids(e), text)
		}
	}
}

// TestPage knows each message that the manual's page explains, and gives what it says where nobody says more.
func TestPage(t *testing.T) {
	page := onPage()
	if len(page) < 70 {
		t.Errorf("%d messages are on the page", len(page))
	}
	for _, k := range page {
		e := Explain(`plugin type="bridge" failed (add): ` + k.Example + " and more")
		if len(e.Findings) == 0 || e.Findings[0].Meaning == "" || k.Means == "" || strings.Contains(k.Means, "](") {
			t.Errorf("%q: %v %q", k.ID, ids(e), k.Means)
		}
	}
	if e := Explain("RangeStart 10.1.0.9 not in network 10.2.0.0/16"); len(e.Findings) != 1 || !strings.Contains(e.Findings[0].Meaning, "outside of the subnet") || !strings.Contains(e.Findings[0].Remedy, "troubleshooting") {
		t.Errorf("%+v", e.Findings)
	}
}

// TestCodes says something of each code of the specification.
func TestCodes(t *testing.T) {
	seen := map[string]bool{}
	for _, code := range []uint{1, 2, 3, 4, 5, 6, 7, 8, 11, 50, 51, 999} {
		seen[codeMeans(code)] = true
	}
	if len(seen) != 12 || seen[codeMeans(99)] || seen[codeMeans(100)] {
		t.Error(seen)
	}
}

func FuzzExplain(f *testing.F) {
	for _, k := range messages() {
		f.Add(k.Example)
	}
	f.Add(`{"code": 11, "msg": "{\"code\": 7}"}`)
	f.Fuzz(func(t *testing.T, text string) {
		e := Explain(text)
		for _, finding := range e.Findings {
			if finding.Meaning == "" {
				t.Error(finding)
			}
		}
	})
}
