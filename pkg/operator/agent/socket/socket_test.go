package socket

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cnibox/cnibox/test/netlab"

	"golang.org/x/sys/unix"
)

// asClient has the test binary be a client: it says what it is answered at the socket that the variable names.
const asClient = "SOCKET_TEST_CLIENT"

// asListener has the test binary be started by systemd: it says which sockets it got.
const asListener = "SOCKET_TEST_LISTENER"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asClient) != "":
		fmt.Println(ask(os.Getenv(asClient), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	case os.Getenv(asListener) != "":
		fmt.Println(listenPassed(os.Getenv(asListener)))
	default:
		os.Exit(m.Run())
	}
}

// ask sends a request, and returns the first line of the answer, or why there is none.
func ask(path, request string) string {
	c, err := net.Dial("unix", path)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_, _ = io.WriteString(c, request) // who is refused may be so before it has said anything
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// serve serves at a socket in a new directory until the test ends.
func serve(t *testing.T, h http.HandlerFunc) (path string, log *netlab.Printed, stop func() error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "socket") // not t.TempDir, which others can't look into
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p, err := Own(filepath.Join(dir, "run", "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := p.Listen(nil, "agent")
	if err != nil {
		t.Fatal(err)
	}
	log = &netlab.Printed{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, h, slog.New(slog.NewTextHandler(log, nil))) }()
	stop = sync.OnceValue(func() error {
		cancel()
		err := <-ended
		p.Close()
		return err
	})
	t.Cleanup(func() { _ = stop() })
	return p.Path, log, stop
}

func ok(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "uid %d\n", Peer(r).Uid) }

const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

func TestRootIsServedAndNobodyElse(t *testing.T) {
	path, log, _ := serve(t, ok)
	if got := ask(path, request); got != "HTTP/1.1 200 OK" {
		t.Errorf("root got %q", got)
	}
	file, err := os.Stat(path)
	if err != nil || file.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", file.Mode(), err)
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v", dir.Mode(), err)
	}

	user := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	rootOfNamespace := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1000, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1000, Size: 1}},
		Credential:  &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
	}
	relax := func() {
		for _, p := range []string{filepath.Dir(filepath.Dir(path)), filepath.Dir(path), path} {
			if err := os.Chmod(p, 0o777); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name, want string
		as         *syscall.SysProcAttr
		before     func()
	}{
		{"uid 1000, by the mode", "permission denied", user, func() {}},
		{"uid 1000, by its credentials", "HTTP/1.1 403 Forbidden", user, relax},
		{"root of a user namespace", "HTTP/1.1 403 Forbidden", rootOfNamespace, relax},
	} {
		tt.before()
		var out []byte
		netlab.Eventually(t, func() (err error) {
			c := exec.Command("/proc/self/exe")
			c.Env, c.SysProcAttr = []string{asClient + "=" + path}, tt.as
			if out, err = c.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", tt.name, err, out)
			}
			if said := string(out); strings.Contains(said, "EOF") || strings.Contains(said, "reset") {
				return errors.New(said) // who has said nothing for a second is told nothing
			}
			return nil
		})
		if !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: %q; want %q", tt.name, out, tt.want)
		}
	}
	if !strings.Contains(log.String(), refusal) || !strings.Contains(log.String(), "uid=1000") {
		t.Errorf("nothing about those that were refused:\n%s", log)
	}
}

const refusal = "refused a client that is not root"

// That clients are refused is said at once, and then every ten seconds, with their number.
func TestRefusalsAreSaidSeldom(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "agent.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	log := &netlab.Printed{}
	synctest.Test(t, func(t *testing.T) { // by a clock that stands still while anybody works
		l := &listener{UnixListener: l, log: slog.New(slog.NewTextHandler(log, nil))}
		for range 3 { // at 0, 6 and 12 s
			l.warn(unix.Ucred{Uid: 1000})
			l.warn(unix.Ucred{Uid: 1000})
			netlab.Pause(6 * time.Second)
		}
	})
	if said := log.String(); strings.Count(said, refusal) != 2 || !strings.Contains(said, "clients=1\n") || !strings.Contains(said, "clients=4\n") {
		t.Errorf("of six clients in twelve seconds it says\n%s", said)
	}
}

func TestOwnRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, prepare := range map[string]func(dir string) error{
		"is no directory": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"no directory": func(dir string) error {
			return os.Symlink(t.TempDir(), dir)
		},
		"its mode is 0750": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o750)) },
		"its mode is 0701": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o701)) },
		"belongs to uid 1000": func(dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			return os.Chown(dir, 1000, 1000)
		},
	} {
		place := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := prepare(place); err != nil {
			t.Fatal(err)
		}
		if p, err := Own(filepath.Join(place, "agent.sock")); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	for _, path := range []string{"agent.sock", "/" + strings.Repeat("x", 107)} {
		if p, err := Own(path); err == nil {
			t.Errorf("%s: %v", path, p)
		}
	}
}

func TestSecondOneIsRefusedAtOnce(t *testing.T) {
	path, _, stop := serve(t, ok)
	_, err := Own(path)
	if err == nil || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("the error does not name the process %d: %v", os.Getpid(), err)
	}
	if got := ask(path, request); got != "HTTP/1.1 200 OK" {
		t.Errorf("the first one is not served any more: %q", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is there when the agent has ended: %v", err)
	}
	p, err := Own(path)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
}

func TestStaleSocket(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		prepare    func(path string) error
	}{
		{"nobody listens at it", "", func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return l.Close()
		}},
		{"somebody listens at it", "another process listens", func(path string) error {
			l, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		}},
		{"a file", "is no socket", func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) }},
		{"a symbolic link", "is no socket", func(path string) error { return os.Symlink("/none", path) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Own(filepath.Join(t.TempDir(), "run", "agent.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if err := tt.prepare(p.Path); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(p.Path)
			if err != nil {
				t.Fatal(err)
			}
			l, err := p.Listen(nil, "agent")
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				_ = l.Close()
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if after, err := os.Lstat(p.Path); err != nil || !os.SameFile(before, after) {
				t.Errorf("what was there is gone: %v", err)
			}
		})
	}
}

// listenPassed is what the agent does with sockets that systemd passes.
func listenPassed(dir string) string {
	_ = os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid())) // which only this process knows
	passed := FromSystemd()
	var said []string
	for _, name := range []string{"agent", "contiv"} {
		p, err := Own(filepath.Join(dir, name+".sock"))
		if err != nil {
			return err.Error()
		}
		l, err := p.Listen(passed, name)
		if err != nil {
			return err.Error()
		}
		_ = l.Close()
		_, err = os.Lstat(p.Path)
		said = append(said, fmt.Sprintf("%s stays %v", name, err == nil))
		p.Close()
	}
	return fmt.Sprint(said, " rest ", passed.Close(), " variables ", os.Getenv("LISTEN_FDS"))
}

// What systemd passes is known by its name or its path, and stays when the agent ends; what nobody asks for is closed.
func TestPassedSockets(t *testing.T) {
	at := func(dir, name string) *os.File {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, tt := range []struct {
		name  string
		files []string // of systemd's sockets
		names string
		want  string
	}{
		{"by name", []string{"contiv.sock", "agent.sock", "other.sock"}, "contiv:agent:other", "[agent stays true contiv stays true] rest [other] variables "},
		{"by path", []string{"contiv.sock", "agent.sock"}, "", "[agent stays true contiv stays true] rest [] variables "},
		{"one of two", []string{"agent.sock"}, "agent", "[agent stays true contiv stays false] rest [] variables "},
		{"at another path", []string{"other.sock"}, "agent", "correct ListenStream="},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			c := exec.Command("/proc/self/exe")
			for _, name := range tt.files {
				c.ExtraFiles = append(c.ExtraFiles, at(dir, name))
			}
			c.Env = []string{asListener + "=" + dir, "LISTEN_FDS=" + strconv.Itoa(len(tt.files)), "LISTEN_FDNAMES=" + tt.names}
			out, err := c.CombinedOutput()
			if err != nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("%s, %v; want %s", out, err, tt.want)
			}
		})
	}
}

// send sends a request with descriptors, a part at a time.
func send(t *testing.T, path string, parts []string, files ...*os.File) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for _, part := range parts {
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		if _, _, err := c.WriteMsgUnix([]byte(part), unix.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func open(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// The first descriptor goes to the handler; no other one stays, however many are sent, and whether the handler wants it or not.
func TestDescriptors(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close what is forgotten
	wants := true
	path, _, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !wants {
			return
		}
		f := TakeFile(r)
		if f == nil || TakeFile(r) != nil {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		defer f.Close()
		text := make([]byte, 10)
		n, _ := f.ReadAt(text, 0)
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
		fmt.Fprintf(w, "%s, closed on exec: %v %v", text[:n], flags&unix.FD_CLOEXEC != 0, err)
	})
	first, second := open(t, "first"), open(t, "second")
	parts := []string{"POST / HTTP/1.1\r\nHost: x\r\nContent-", "Length: 4\r\n\r\nab", "cd"}
	ask(path, request)
	before := descriptorsOf(t)
	for range 100 {
		c := send(t, path, parts, first, second, second, second)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if wants && string(text) != "first, closed on exec: true <nil>" {
			t.Fatalf("got %q, %v", text, err)
		}
		_ = c.Close()
		wants = !wants
	}
	_ = send(t, path, parts[:1], first, second).Close() // a client that goes before it has said what it wants
	netlab.Until(t, "all descriptors are closed", func() bool { return descriptorsOf(t) <= before })
}

func descriptorsOf(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Clients that say nothing, or say it slowly, have others wait for some seconds at most, and the process does not grow with their number.
func TestClientsAreBounded(t *testing.T) {
	path, _, _ := serve(t, ok)
	goroutines := runtime.NumGoroutine()
	for range 10_000 {
		c, err := net.Dial("unix", path)
		if errors.Is(err, unix.EAGAIN) { // more wait than the kernel keeps, on a busy machine
			err = netlab.Await(func() error { c, err = net.Dial("unix", path); return err })
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	if got := ask(path, request); got != "HTTP/1.1 200 OK" {
		t.Errorf("after 10,000 connections: %q", got)
	}
	for range 2 * most {
		c := send(t, path, []string{"P"}) // and the next byte a second later
		defer c.Close()
	}
	for range most + 10 {
		if got := ask(path, request); got != "HTTP/1.1 200 OK" {
			t.Fatalf("beside %d slow clients: %q", 2*most, got)
		}
	}
	if n := runtime.NumGoroutine(); n > goroutines+most+50 {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	rubbish := strings.Repeat("x", 1<<20)
	for range 20 {
		got := ask(path, rubbish)
		if !strings.Contains(got, "400") && !strings.Contains(got, "431") && !strings.Contains(got, "reset") {
			t.Errorf("a megabyte of rubbish: %q", got)
		}
	}
	if got := ask(path, request); got != "HTTP/1.1 200 OK" {
		t.Errorf("after rubbish: %q", got)
	}
	netlab.Until(t, "the clients are gone", func() bool { return runtime.NumGoroutine() <= goroutines+most+10 })
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	if memory.HeapAlloc > 32<<20 {
		t.Errorf("%d MiB are in use", memory.HeapAlloc>>20)
	}
}

// A body that is too large is the handler's to refuse; so is one that does not come.
func TestBodies(t *testing.T) {
	path, _, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusTeapot)
		}
		fmt.Fprint(w, len(body))
	})
	post := func(size, announced int) string {
		return ask(path, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", announced, strings.Repeat("x", size)))
	}
	if got := post(maxBody, maxBody); got != "HTTP/1.1 200 OK" {
		t.Errorf("the largest body: %q", got)
	}
	if got := post(maxBody+1, maxBody+1); got != "HTTP/1.1 418 I'm a teapot" {
		t.Errorf("a larger body: %q", got)
	}
}

// A client that goes ends its request's context.
func TestClientThatGoes(t *testing.T) {
	began, gone := make(chan bool), make(chan error)
	path, _, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		began <- true
		<-r.Context().Done()
		gone <- r.Context().Err()
	})
	c := send(t, path, []string{request})
	<-began
	_ = c.Close()
	if err := <-gone; err == nil {
		t.Error("no error")
	}
}

// What is under way when the agent stops is finished, new clients are not served, and the slow are sent away at once.
func TestStop(t *testing.T) {
	began, finish := make(chan bool), make(chan bool)
	path, _, stop := serve(t, func(w http.ResponseWriter, r *http.Request) {
		began <- true
		<-finish
		ok(w, r)
	})
	answer := make(chan string)
	go func() { answer <- ask(path, request) }()
	<-began
	slow := send(t, path, []string{"P"})
	stopped := make(chan error)
	go func() { stopped <- stop() }()
	if _, err := slow.Read(make([]byte, 1)); err == nil {
		t.Error("a slow client was answered")
	}
	netlab.Until(t, "the socket is gone", func() bool { _, err := os.Lstat(path); return os.IsNotExist(err) })
	close(finish)
	if got := <-answer; got != "HTTP/1.1 200 OK" {
		t.Errorf("what was under way: %q", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
