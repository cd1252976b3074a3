package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/agent/socket"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// fake is the plugin of the network net.
type fake struct {
	version.PluginDecoder
	mu    sync.Mutex
	calls []string // "ADD c1"
	stdin string   // of the last
	gone  string   // a plugin that is not found
	do    func(ctx context.Context, verb, id, netns string) (string, error)
}

func (f *fake) FindInPath(plugin string, _ []string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if plugin == f.gone {
		return "", fmt.Errorf("plugin %s is not there", plugin)
	}
	return "/" + plugin, nil
}

func (f *fake) ExecPlugin(ctx context.Context, _ string, stdin []byte, environ []string) ([]byte, error) {
	of := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		of[name] = value
	}
	f.mu.Lock()
	f.calls = append(f.calls, fmt.Sprint(of["CNI_COMMAND"], " ", of["CNI_CONTAINERID"]))
	do := f.do
	f.stdin = string(stdin)
	f.mu.Unlock()
	if do != nil {
		text, err := do(ctx, of["CNI_COMMAND"], of["CNI_CONTAINERID"], of["CNI_NETNS"])
		if text != "" || err != nil {
			return []byte(text), err
		}
	}
	return fmt.Appendf(nil, `{"cniVersion": "1.0.0", "interfaces": [{"name": "br0"}, {"name": "eth0", "sandbox": %q}], "ips": [{"address": "10.1.2.3/24", "interface": 1}, {"address": "fd00::3/64", "interface": 1}, {"address": "10.9.9.9/24", "interface": 0}]}`, of["CNI_NETNS"]), nil
}

func (f *fake) said() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.calls, ", ")
}

// bench is a server with its plugin.
type bench struct {
	testing.TB
	*fake
	server *Server
	socket string
	stop   func()
}

const conflist = `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "fake"}]}`

func newBench(t testing.TB) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{TB: t, fake: &fake{}, socket: filepath.Join(dir, "run", "contiv.sock")}
	b.write(filepath.Join(dir, "10-net.conflist"), conflist)
	place, err := socket.Own(b.socket)
	b.must(err)
	l, err := place.Listen(nil, "contiv")
	b.must(err)
	b.server, err = New(Options{
		Socket: b.socket, Network: "net", ConfDir: dir, CacheDir: filepath.Join(dir, "cache"), Exec: func(string) invoke.Exec { return b.fake },
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	b.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- socket.Serve(ctx, l, b.server, b.server.Log) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		b.must(<-ended)
		place.Close()
	})
	t.Cleanup(b.stop)
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) write(path, text string) {
	b.Helper()
	b.must(os.WriteFile(path, []byte(text), 0o600))
}

// newNetns makes a network namespace and mounts it.
func newNetns(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mountNew(t, path)
	return path
}

// mountNew mounts a new network namespace at a path, on top of what is there.
func mountNew(t testing.TB, path string) {
	t.Helper()
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this function
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
}

// answer is what a client sees.
type answer struct {
	code int
	kind string
	body string
	contiv.Response
}

// connect sends a request with the client's own bytes, and a namespace if there is one.
func (b *bench) connect(path string, q contiv.Request, file *os.File, header string) *net.UnixConn {
	b.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: b.socket, Net: "unix"})
	b.must(err)
	body := q.JSON()
	head := fmt.Sprintf("POST %s HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", path, len(body))
	if header != "" {
		head += "Cni-Netns: " + header + "\r\n"
	}
	var oob []byte
	if file != nil {
		oob = unix.UnixRights(int(file.Fd()))
	}
	_, _, err = c.WriteMsgUnix(append([]byte(head+"\r\n"), body...), oob, nil)
	b.must(err)
	return c
}

func read(t testing.TB, c *net.UnixConn) answer {
	t.Helper()
	defer c.Close()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{code: r.StatusCode, kind: r.Header.Get("Content-Type"), body: string(body)}
	a.Response, _ = contiv.ParseResponse(body)
	return a
}

func (b *bench) call(path string, q contiv.Request) answer {
	b.Helper()
	return read(b, b.connect(path, q, nil, ""))
}

func of(id, netns string) contiv.Request {
	return contiv.Request{Pod: "web-0", Namespace: "default", ContainerID: id, Netns: netns, IfName: "eth0"}
}

// result is what libcni keeps of an attachment, "" if that is nothing.
func (b *bench) result(id string) (netns, text string) {
	b.Helper()
	path := node.PathOf(b.server.CacheDir, b.server.keyOf(of(id, "")))
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", ""
	}
	b.must(err)
	r, err := node.ReadResult(path)
	b.must(err)
	return r.NetNS, string(content)
}

// locked is how many locks are held.
func (b *bench) locked() int {
	b.server.locks.mu.Lock()
	defer b.server.locks.mu.Unlock()
	return len(b.server.locks.busy)
}

func (b *bench) expect(a answer, code, result int, parts ...string) {
	b.Helper()
	if a.code != code || a.Response.Result != result {
		b.Errorf("answer %d %s, want %d with result %d", a.code, a.body, code, result)
	}
	for _, part := range parts {
		if !strings.Contains(a.body, part) {
			b.Errorf("answer %s, want one with %q", a.body, part)
		}
	}
}

func TestAnswersAreContivs(t *testing.T) {
	b := newBench(t)
	path := newNetns(t)
	a := b.call(contiv.AddPath, of("c1", path))
	if want := `{"endpointid":"c1","ipaddress":"10.1.2.3/24","ipv6address":"fd00::3/64"}`; a.code != 200 || a.kind != "application/json" || a.body != want {
		t.Errorf("ADD: %d %s %s\nwant %s", a.code, a.kind, a.body, want)
	}
	kept, text := b.result("c1")
	if kept != path || !strings.Contains(text, `"sandbox":"`+path+`"`) || strings.Contains(text, "/proc/") {
		t.Errorf("libcni keeps %s", text)
	}
	for _, pair := range []string{`["IgnoreUnknown","1"]`, `["K8S_POD_NAME","web-0"]`, `["K8S_POD_NAMESPACE","default"]`, `["K8S_POD_INFRA_CONTAINER_ID","c1"]`} {
		if !strings.Contains(text, pair) {
			t.Errorf("the arguments lack %s: %s", pair, text)
		}
	}
	b.expect(b.call(contiv.AddPath, of("c1", path)), 500, 999, "c1 has eth0 on network net already")
	if got := b.said(); got != "ADD c1" {
		t.Errorf("a second ADD called plugins: %s", got)
	}

	a = b.call(contiv.DelPath, of("c1", path))
	if want := `{"endpointid":"c1"}`; a.code != 200 || a.kind != "application/json" || a.body != want {
		t.Errorf("DEL: %d %s %s\nwant %s", a.code, a.kind, a.body, want)
	}
	b.expect(b.call(contiv.DelPath, of("unknown", "")), 200, 0)
	if got := b.said(); got != "ADD c1, DEL c1, DEL unknown" {
		t.Errorf("calls: %s", got)
	}
	if _, text := b.result("c1"); text != "" {
		t.Errorf("after DEL libcni keeps %s", text)
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	b := newBench(t)
	path := newNetns(t)
	for _, tt := range []struct {
		err    error
		result int
		parts  []string
	}{
		{types.NewError(types.ErrTryAgainLater, "the lock is held", "wait"), 11, []string{`"errmsg":"plugin type=\"fake\" failed (add): the lock is held"`, `"errinfo":"wait"`}},
		{types.NewError(110, "own", ""), 110, []string{"own"}},
		{&types.Error{Msg: "it ended without an error document"}, 999, []string{"without an error document"}},
		{errors.New("plain"), 999, []string{"plain"}},
	} {
		b.do = func(_ context.Context, verb, _, _ string) (string, error) {
			if verb == "ADD" {
				return "", tt.err
			}
			return "", nil
		}
		a := b.call(contiv.AddPath, of("c1", path))
		b.expect(a, 500, tt.result, tt.parts...)
		if strings.Contains(a.kind, "json") {
			t.Errorf("an error has the type %s", a.kind)
		}
		if got := b.said(); got != "ADD c1, DEL c1" {
			t.Errorf("a failed ADD is not taken away: %s", got)
		}
		b.calls = nil
	}
	b.do = func(context.Context, string, string, string) (string, error) {
		return "", types.NewError(101, "it can't go", "")
	}
	b.expect(b.call(contiv.DelPath, of("c1", path)), 500, 101, "it can't go")
	b.do = func(context.Context, string, string, string) (string, error) { panic("oh") }
	b.expect(b.call(contiv.AddPath, of("c1", path)), 500, 999, "bug: oh")
	b.do = nil
	b.expect(b.call(contiv.AddPath, of("c1", path)), 200, 0)
}

func TestWhatIsNotContivs(t *testing.T) {
	b := newBench(t)
	const good = `{"K8S_POD_INFRA_CONTAINER_ID":"c1","CNI_NETNS":"/none","CNI_IFNAME":"eth0"}`
	for _, tt := range []struct {
		name, method, path, kind, body string
		code                           int
		want                           string
	}{
		{"another path", "POST", "/ContivCNI.UpdatePod", "application/json", good, 404, "404"},
		{"a path with more", "POST", "/ContivCNI.AddPod/", "application/json", good, 404, "404"},
		{"another verb", "GET", "/ContivCNI.AddPod", "application/json", good, 404, "404"},
		{"another type", "POST", "/ContivCNI.AddPod", "application/json; charset=utf-8", good, 404, "404"},
		{"no type", "POST", "/ContivCNI.DelPod", "", good, 404, "404"},
		{"no JSON", "POST", "/ContivCNI.AddPod", "application/json", "{", 500, "{}"},
		{"no body", "POST", "/ContivCNI.DelPod", "application/json", "", 500, "{}"},
		{"no object", "POST", "/ContivCNI.DelPod", "application/json", "[1]", 500, "{}"},
		{"1 MiB of rubbish", "POST", "/ContivCNI.DelPod", "application/json", strings.Repeat("x", 1<<20), 500, "{}"},
		{"a number", "POST", "/ContivCNI.DelPod", "application/json", `{"K8S_POD_INFRA_CONTAINER_ID":1,"CNI_IFNAME":"eth0"}`, 500, `"result":4`},
		{"a container that is a path", "POST", "/ContivCNI.DelPod", "application/json", `{"K8S_POD_INFRA_CONTAINER_ID":"../c1","CNI_IFNAME":"eth0"}`, 500, `"result":4`},
		{"an interface that is a path", "POST", "/ContivCNI.DelPod", "application/json", `{"K8S_POD_INFRA_CONTAINER_ID":"c1","CNI_IFNAME":"a/b"}`, 500, `"result":4`},
		{"a pod with arguments of its own", "POST", "/ContivCNI.DelPod", "application/json", `{"K8S_POD_INFRA_CONTAINER_ID":"c1","CNI_IFNAME":"eth0","K8S_POD_NAME":"a;K8S_POD_NAME=b"}`, 500, `"result":4`},
		{"keys that nobody knows", "POST", "/ContivCNI.DelPod", "application/json", `{"x":[{}],"K8S_POD_INFRA_CONTAINER_ID":"c1","CNI_IFNAME":"eth0"}`, 200, `{"endpointid":"c1"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := net.Dial("unix", b.socket)
			b.must(err)
			go fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", tt.method, tt.path, tt.kind, len(tt.body), tt.body)
			a := read(t, c.(*net.UnixConn))
			if a.code != tt.code || !strings.Contains(a.body, tt.want) {
				t.Errorf("%d %s, want %d %s", a.code, a.body, tt.code, tt.want)
			}
		})
	}
	if got := b.said(); got != "DEL c1" {
		t.Errorf("plugins were called: %s", got)
	}
}

// A call waits for another one about the same container, and for no other.
func TestOneCallForAContainerAtATime(t *testing.T) {
	b := newBench(t)
	path := newNetns(t)
	began, end := make(chan string, 10), make(chan bool)
	b.do = func(_ context.Context, verb, id, _ string) (string, error) {
		began <- verb + " " + id
		if id == "c1" && verb == "ADD" {
			<-end
		}
		return "", nil
	}
	add := b.connect(contiv.AddPath, of("c1", path), nil, "")
	if got := <-began; got != "ADD c1" {
		t.Fatal(got)
	}
	del := b.connect(contiv.DelPath, of("c1", path), nil, "")
	b.expect(b.call(contiv.AddPath, of("c2", path)), 200, 0)
	if got := <-began; got != "ADD c2" {
		t.Errorf("%s began beside ADD c1", got)
	}
	close(end)
	b.expect(read(t, add), 200, 0)
	b.expect(read(t, del), 200, 0)
	if got := <-began; got != "DEL c1" {
		t.Error(got)
	}
	netlab.Until(t, "all locks are free", func() bool { return b.locked() == 0 })
}

// The 65th ADD is told to come again at once; a DEL is served beside them.
func TestBusy(t *testing.T) {
	b := newBench(t)
	path := newNetns(t)
	began, end := make(chan bool), make(chan bool)
	b.do = func(_ context.Context, verb, _, _ string) (string, error) {
		if verb == "ADD" {
			began <- true
			<-end
		}
		return "", nil
	}
	var adds []*net.UnixConn
	for i := range most {
		adds = append(adds, b.connect(contiv.AddPath, of(fmt.Sprint("c", i), path), nil, ""))
		<-began
	}
	c := b.connect(contiv.AddPath, of("c65", path), nil, "")
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	b.must(err)
	var body map[string]any
	b.must(json.NewDecoder(r.Body).Decode(&body))
	if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" || body["result"] != 11.0 || body["errmsg"] == "" {
		t.Errorf("%s %v %v", r.Status, r.Header, body)
	}
	for range most + 1 {
		b.expect(b.call(contiv.DelPath, of("gone", "")), 200, 0)
	}
	close(end)
	for _, c := range adds {
		b.expect(read(t, c), 200, 0)
	}
	if strings.Contains(b.said(), "c65") {
		t.Error("plugins were called for the 65th")
	}
}

// An ADD whose client goes is undone, whether it has ended or not.
func TestClientThatGoesHasNothing(t *testing.T) {
	b := newBench(t)
	path := newNetns(t)
	for name, do := range map[string]func(ctx context.Context, _, _, _ string) (string, error){
		"the plugin ends with it": func(ctx context.Context, _, _, _ string) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		},
		"the plugin has ended": func(ctx context.Context, _, _, _ string) (string, error) {
			<-ctx.Done()
			return "", nil
		},
	} {
		began := make(chan bool)
		b.do = func(ctx context.Context, verb, id, netns string) (string, error) {
			if verb == "DEL" {
				return "", ctx.Err()
			}
			began <- true
			return do(ctx, verb, id, netns)
		}
		c := b.connect(contiv.AddPath, of("c1", path), nil, "")
		<-began
		b.must(c.Close())
		netlab.Until(t, name+": ADD is undone", func() bool { return b.said() == "ADD c1, DEL c1" })
		netlab.Until(t, name+": the lock is free", func() bool {
			b.server.locks.mu.Lock()
			defer b.server.locks.mu.Unlock()
			return len(b.server.locks.busy) == 0
		})
		if _, text := b.result("c1"); text != "" {
			t.Errorf("%s: libcni keeps %s", name, text)
		}
		b.mu.Lock()
		b.calls = nil
		b.mu.Unlock()
	}
}

// A DEL goes on when its client has gone.
func TestDELGoesOn(t *testing.T) {
	b := newBench(t)
	began, end, cancelled := make(chan bool), make(chan bool), make(chan error)
	b.do = func(ctx context.Context, _, _, _ string) (string, error) {
		began <- true
		<-end
		cancelled <- ctx.Err()
		return "", nil
	}
	c := b.connect(contiv.DelPath, of("c1", ""), nil, "")
	<-began
	b.must(c.Close())
	other := b.connect(contiv.DelPath, of("c2", ""), nil, "") // whose answer comes after the end of the first client was seen
	<-began
	close(end)
	for range 2 {
		if err := <-cancelled; err != nil {
			t.Errorf("the plugin was told to end: %v", err)
		}
	}
	b.expect(read(t, other), 200, 0)
}

// A DEL goes on past plugins that are missing or fail, and says so. The result stays until all have been called.
func TestDELGoesOnPastPlugins(t *testing.T) {
	b := newBench(t)
	b.write(filepath.Join(b.server.ConfDir, "10-net.conflist"), `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "fake"}, {"type": "fake"}, {"type": "later"}]}`)
	path := newNetns(t)
	b.expect(b.call(contiv.AddPath, of("c1", path)), 200, 0)
	b.calls, b.gone = nil, "later"
	fails := true
	b.do = func(context.Context, string, string, string) (string, error) {
		defer func() { fails = false }()
		if fails {
			return "", errors.New("it is broken")
		}
		return "", nil
	}
	b.expect(b.call(contiv.DelPath, of("c1", path)), 500, int(types.ErrInternal), "plugin later: plugin later is not there", "plugin fake: it is broken")
	if said := b.said(); said != "DEL c1, DEL c1" {
		t.Errorf("the plugins were called for %s", said)
	}
	if _, text := b.result("c1"); text == "" {
		t.Error("the result has gone")
	}
	b.gone = ""
	b.expect(b.call(contiv.DelPath, of("c1", path)), 200, 0)
	if _, text := b.result("c1"); text != "" {
		t.Errorf("libcni keeps %s", text)
	}
}

// Calls about an attachment wait for who holds it, such as a collection, and others don't.
func TestHold(t *testing.T) {
	b := newBench(t)
	path := newNetns(t)
	key := b.server.keyOf(of("c1", ""))
	if !b.server.TryLock(key) || b.server.TryLock(key) {
		t.Fatal("it is not held, or twice")
	}
	add := b.connect(contiv.AddPath, of("c1", path), nil, "")
	netlab.Until(t, "the ADD waits", func() bool { return len(b.server.adds) == 1 })
	b.expect(b.call(contiv.AddPath, of("c2", path)), 200, 0)
	if got := b.said(); got != "ADD c2" {
		t.Errorf("beside who holds c1: %s", got)
	}
	b.server.Release(key)
	b.expect(read(t, add), 200, 0)
}

// The network may change at any time, and may not call the server again.
func TestNetwork(t *testing.T) {
	b := newBench(t)
	path, file := newNetns(t), filepath.Join(b.server.ConfDir, "10-net.conflist")
	b.expect(b.call(contiv.AddPath, of("c1", path)), 200, 0)
	b.must(os.Remove(file))
	b.expect(b.call(contiv.AddPath, of("c2", path)), 500, 7, "no network")
	b.expect(b.call(contiv.DelPath, of("c1", path)), 200, 0)
	b.expect(b.call(contiv.DelPath, of("unknown", path)), 200, 0)
	if got := b.said(); got != "ADD c1, DEL c1" {
		t.Errorf("calls: %s", got)
	}
	var log strings.Builder
	o := b.server.Options
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	b.write(filepath.Join(o.ConfDir, "20-nets.conflist"), `{"cniVersion": "1.0.0", "name": "nets", "plugins": [{"type": "fake"}]}`)
	if _, err := New(o); err != nil || !strings.Contains(log.String(), "attached yet") || !strings.Contains(log.String(), "there is nets") {
		t.Errorf("a network that is not there yet: %v, and it says %q", err, log.String())
	}
	for _, loop := range []string{`{"type": "contivk8s"}`, `{"type": "my-contivk8s"}`, `{"type": "chain", "plugins": [{"type": "contivk8s"}]}`} {
		b.write(file, `{"cniVersion": "1.0.0", "name": "net", "plugins": [`+loop+`]}`)
		if _, err := New(b.server.Options); err == nil || !strings.Contains(err.Error(), "would call itself") {
			t.Errorf("%s: %v", loop, err)
		}
		b.expect(b.call(contiv.AddPath, of("c2", path)), 500, 7, "would call itself")
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"K8S_POD_NAME":"web","K8S_POD_NAMESPACE":"default","K8S_POD_INFRA_CONTAINER_ID":"c1","CNI_NETNS":"/run/netns/web","CNI_IFNAME":"eth0"}`))
	f.Add([]byte(`{"K8S_POD_NAME":"a;b=c","K8S_POD_INFRA_CONTAINER_ID":"c1","CNI_IFNAME":"eth0"}`))
	f.Add([]byte(`{"K8S_POD_INFRA_CONTAINER_ID":"../../etc","CNI_IFNAME":"."}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := parse(body)
		if err != nil {
			return
		}
		s := &Server{Options: Options{Network: "net", CacheDir: "/cache"}}
		if path := node.PathOf(s.CacheDir, s.keyOf(q)); filepath.Dir(path) != "/cache/results" || filepath.Clean(path) != path {
			t.Errorf("%q leads to %s", body, path)
		}
		for _, pair := range s.runtimeConf(q, "").Args {
			if strings.ContainsAny(pair[1], ";=\x00") {
				t.Errorf("%q has the argument %q", body, pair)
			}
		}
	})
}

// hide mounts an empty directory in the mount namespace of the tests.
func hide(t testing.TB, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
}

// At its start the server does what contivk8s has queued for its socket, and nothing else. What fails stays queued.
func TestReplay(t *testing.T) {
	hide(t, "/run", "/var/lib")
	b := newBench(t)
	path := newNetns(t)
	for _, id := range []string{"c1", "c2", "c3"} {
		b.expect(b.call(contiv.AddPath, of(id, path)), 200, 0)
	}
	b.calls = nil
	record := func(id, socket string, since time.Time) contiv.Record {
		return contiv.Record{Key: plugin.Key{Network: "runtimes", ContainerID: id, IfName: "eth0"}, Pod: "web-0", Namespace: "default", Socket: socket, Since: since}
	}
	now := time.Now()
	for _, r := range []contiv.Record{
		record("c1", b.socket, now), record("c2", b.socket, now), record("c3", b.socket, now), record("gone", b.socket, now), record("others", "/run/other.sock", now),
	} {
		b.must(r.Queue())
	}
	b.must(record("c2", b.socket, now.Add(time.Second)).Write()) // attached again since
	b.do = func(_ context.Context, _, id, netns string) (string, error) {
		if id == "c1" && netns != path {
			t.Errorf("detached from %q, not %s, which is known", netns, path)
		}
		if id == "c3" {
			return "", types.NewError(101, "it can't go", "")
		}
		return "", nil
	}
	b.server.Replay(t.Context())
	calls := strings.Split(b.said(), ", ")
	slices.Sort(calls)
	if got, want := strings.Join(calls, ", "), "DEL c1, DEL c3, DEL gone"; got != want {
		t.Errorf("calls: %s, want %s", got, want)
	}
	left, err := contiv.Deletions()
	b.must(err)
	var ids []string
	for _, r := range left {
		ids = append(ids, r.ContainerID)
	}
	slices.Sort(ids)
	if got := strings.Join(ids, " "); got != "c3 others" {
		t.Errorf("queued are %q", got)
	}
	if netns, _ := b.result("c2"); netns != path {
		t.Error("the container that was attached again is gone")
	}
}
