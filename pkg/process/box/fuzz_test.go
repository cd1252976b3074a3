package box

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// curious is a plugin that reads all of a request.
type curious struct{}

func (curious) read(r *plugin.Request) error {
	_ = r.Key.String()
	_ = r.HostEnd(0)
	_ = r.Valid
	_ = r.Config.Keys()
	_ = r.Config.JSON()
	r.Config.Object("ipam").String("type", new(string))
	r.Config.Int("mtu", new(int))
	if _, err := plugin.Arguments(r.Args, "MAC"); err != nil {
		return err
	}
	return r.Config.Err()
}

func (c curious) Add(_ context.Context, r *plugin.Request) (*types100.Result, error) {
	return r.PrevResult, c.read(r)
}
func (c curious) Del(_ context.Context, r *plugin.Request) error                    { return c.read(r) }
func (c curious) Mend(_ context.Context, r *plugin.Request, _ *plugin.Mender) error { return c.read(r) }
func (c curious) Status(_ context.Context, r *plugin.Request) error                 { return c.read(r) }
func (c curious) GC(_ context.Context, r *plugin.Request) error                     { return c.read(r) }

// FuzzRequest calls a plugin with any environment and configuration: exactly
// one document comes out of an ADD and of a failure, and nothing else.
func FuzzRequest(f *testing.F) {
	const chain = `{"cniVersion":"1.0.0","name":"demo","type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,
		"ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]},
		"runtimeConfig":{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]},
		"prevResult":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/web"}],"ips":[{"interface":0,"address":"10.88.0.2/16","gateway":"10.88.0.1"}]}}`
	const own = "/proc/thread-self/ns/net"
	for _, command := range []string{"ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION", "", "add"} {
		f.Add("demo", command, "c0ffee", own, "eth0", "IgnoreUnknown=1;K8S_POD_NAME=web", "/opt/cni/bin", "1", []byte(chain))
	}
	f.Add("demo", "GC", "", "", "", "", "/", "", []byte(`{"cniVersion":"1.1.0","name":"n","cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}]}`))
	f.Add("calico", "ADD", "a", "/none", "eth%d", ";", ":", "TRUE", []byte(`{"name":1}`))
	f.Add("demo", "CHECK", "a/b", "/", "interface0123456", "x", "", "", []byte(`[`))
	f.Add("demo", "ADD", "a", own, "eth0", "", "/", "true", []byte(`{"cniVersion":"0.2.0","name":"n","prevResult":{"ip4":{"ip":"10.0.0.1/8","routes":[{"dst":"::/0"}]}}}`))
	f.Fuzz(func(t *testing.T, name, command, id, ns, ifName, args, path, override string, stdin []byte) {
		if !harmless(ns) {
			return
		}
		env := map[string]string{
			"CNI_COMMAND": command, "CNI_CONTAINERID": id, "CNI_NETNS": ns, "CNI_IFNAME": ifName, "CNI_ARGS": args, "CNI_PATH": path,
			"CNI_NETNS_OVERRIDE": override,
		}
		var stdout bytes.Buffer
		b := &Box{Plugins: plugin.Table{{Name: "demo", Plugin: curious{}}}}
		code := b.Main(Process{
			Args: []string{name}, Getenv: func(key string) string { return env[key] },
			Stdin: bytes.NewReader(stdin), Stdout: &stdout, Stderr: io.Discard,
		})
		want := 0
		if code == 1 || name == "demo" && (command == "ADD" || command == "VERSION") {
			want = 1
		}
		if command == "" {
			return // a person asks
		}
		if n := documents(t, stdout.Bytes()); n != want || code < 0 || code > 1 {
			t.Errorf("exit code %d, %d documents, want %d:\n%s", code, n, want, &stdout)
		}
		if code == 1 {
			complete(t, stdout.Bytes())
		}
	})
}

// harmless keeps the fuzzer from opening devices of the machine.
func harmless(path string) bool {
	return slices.Contains([]string{"", "/", "/none", "/proc/thread-self/ns/net", "/proc/self/ns/mnt"}, path) || !strings.Contains(path, "/")
}

func documents(t *testing.T, out []byte) (n int) {
	t.Helper()
	for dec := json.NewDecoder(bytes.NewReader(out)); ; n++ {
		var v map[string]any
		err := dec.Decode(&v)
		if err == io.EOF {
			return n
		}
		if err != nil {
			t.Fatalf("not JSON: %v\n%s", err, out)
		}
	}
}

func complete(t *testing.T, out []byte) {
	t.Helper()
	var d document
	if err := json.Unmarshal(out, &d); err != nil || d.CNIVersion == "" || d.Code == 0 || d.Msg == "" {
		t.Errorf("incomplete error document %+v, %v", d, err)
	}
	if strings.HasPrefix(d.Msg, "demo ") && strings.Contains(d.Msg, ": bug: ") {
		t.Errorf("the plugin panicked: %s\n%s", d.Msg, d.Details)
	}
}
