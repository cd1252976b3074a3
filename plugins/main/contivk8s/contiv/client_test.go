package contiv

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listen listens on a socket in a directory of the test.
func listen(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.UnixListener), path
}

func dial(t *testing.T, ctx context.Context, socket string) *Conn {
	t.Helper()
	c, err := Dial(ctx, socket, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Go's server, as contiv's daemon has it, knows nothing of the file that comes with the request.
func TestPostToGoServer(t *testing.T) {
	l, socket := listen(t)
	var got *http.Request
	var body []byte
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(bytes.Repeat([]byte("x"), 100_000)) // of a length that the server does not know before
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	file, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	q := Request{Pod: "web", ContainerID: "c1", IfName: "eth0"}
	a, err := dial(t, t.Context(), socket).Post(AddPath, q, int(file.Fd()), "/run/netns/web")
	if err != nil {
		t.Fatal(err)
	}
	if a.Code != http.StatusTeapot || a.Status != "418 I'm a teapot" || len(a.Body) != 100_000 {
		t.Errorf("got %d %q and %d bytes", a.Code, a.Status, len(a.Body))
	}
	if got.Method != http.MethodPost || got.URL.Path != AddPath || got.Host != "localhost" || string(body) != string(q.JSON()) {
		t.Errorf("the server got %s %s for %s: %s", got.Method, got.URL.Path, got.Host, body)
	}
	if types := got.Header.Values("Content-Type"); len(types) != 1 || types[0] != "application/json" || got.Header.Get(NetnsHeader) != "/run/netns/web" {
		t.Errorf("the server got the header %v", got.Header)
	}
}

// A server that wants it gets the file with the first bytes.
func TestPostSendsTheNamespace(t *testing.T) {
	l, socket := listen(t)
	files := make(chan int, 1)
	go func() {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer conn.Close()
		text, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
		_, n, _, _, _ := conn.ReadMsgUnix(text, oob)
		messages, _ := unix.ParseSocketControlMessage(oob[:n])
		for _, m := range messages {
			fds, _ := unix.ParseUnixRights(&m)
			for _, fd := range fds {
				files <- fd
			}
		}
		_, _ = conn.Write([]byte("HTTP/1.0 200 OK\r\n\r\n{}"))
	}()
	file, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := dial(t, t.Context(), socket).Post(AddPath, Request{}, int(file.Fd()), ""); err != nil {
		t.Fatal(err)
	}
	var own, theirs unix.Stat_t
	fd := <-files
	defer unix.Close(fd)
	if err := errors.Join(unix.Fstat(int(file.Fd()), &own), unix.Fstat(fd, &theirs)); err != nil || own.Ino != theirs.Ino || own.Dev != theirs.Dev {
		t.Errorf("the file that came is another one: %v", err)
	}
}

func TestNetnsHeaderIsOneLine(t *testing.T) {
	for path, want := range map[string]bool{"/run/netns/web": true, "/run/a b": true, "": false, "/run/x\r\nCni-Uid: 0": false, "/run/é": false} {
		l, socket := listen(t)
		text := make(chan string, 1)
		go func() {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			b := make([]byte, 4096)
			n, _ := conn.Read(b)
			text <- string(b[:n])
			_ = conn.Close()
		}()
		if _, err := dial(t, t.Context(), socket).Post(DelPath, Request{ContainerID: "c1"}, -1, path); err == nil {
			t.Error("no answer is no error")
		}
		got := <-text
		if strings.Contains(got, "\r\n"+NetnsHeader+": "+path+"\r\n") != want || !want && strings.Contains(got, "Cni-") {
			t.Errorf("for %q it sends %q", path, got)
		}
	}
}

func TestDialWaitsForADaemonThatStarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if _, err := Dial(t.Context(), path, 0); !errors.Is(err, unix.ENOENT) {
		t.Errorf("without patience: %v", err)
	}
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	_ = old.Close()
	if _, err := Dial(t.Context(), path, 0); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	failed := make(chan error, 1)
	go func() {
		c, err := Dial(t.Context(), path, time.Minute)
		if err == nil {
			c.Close()
		}
		failed <- err
	}()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := <-failed; err != nil {
		t.Errorf("it was not waited for: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, filepath.Join(t.TempDir(), "none"), time.Hour); err == nil {
		t.Error("it connected after the call had ended")
	}
}

// A server that says nothing is waited for until the call ends.
func TestPostEndsWithTheCall(t *testing.T) {
	_, socket := listen(t)
	const silence = 50 * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(t.Context(), silence, errors.New("out of time"))
	defer cancel()
	if _, err := dial(t, ctx, socket).Post(AddPath, Request{}, -1, ""); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestReadAnswer(t *testing.T) {
	long := strings.Repeat("x", MaxBody+1)
	tests := []struct {
		name, text string
		code       int
		body, err  string
	}{
		{"with a length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}more", 200, "{}", ""},
		{"to the end", "HTTP/1.0 500 Internal Server Error\r\n\r\n{}", 500, "{}", ""},
		{"without words", "HTTP/1.1 204 \r\n\r\n", 204, "", ""},
		{"without a blank behind the code", "HTTP/1.1 204\r\n\r\n", 204, "", ""},
		{"lines that end as in Unix", "HTTP/1.1 200 OK\nContent-Length: 2\n\n{}", 200, "{}", ""},
		{"of the longest length", "HTTP/1.1 200 OK\r\n\r\n" + long[1:], 200, long[1:], ""},
		{"nothing", "", 0, "", "no answer"},
		{"another protocol", "SSH-2.0-OpenSSH_9.2\r\n", 0, "", "no answer of HTTP"},
		{"no code", "HTTP/1.1 OK\r\n\r\n", 0, "", "no answer of HTTP"},
		{"a code of four", "HTTP/1.1 2000 OK\r\n\r\n", 0, "", "no answer of HTTP"},
		{"HTTP/2", "HTTP/2 200 OK\r\n\r\n", 0, "", "no answer of HTTP"},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-Le", 0, "", "the head of the answer ends early"},
		{"half a body", "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"ipadd", 0, "", "ends early"},
		{"no body", "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n", 0, "", "ends early"},
		{"a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0, "", "length"},
		{"a length that is no number", "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}", 0, "", "length"},
		{"too long by its length", "HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n" + long, 0, "", "longer than 1 MiB"},
		{"too long", "HTTP/1.1 200 OK\r\n\r\n" + long, 0, "", "longer than 1 MiB"},
		{"in pieces", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 0, "", "encoding"},
		{"a head without an end", "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+long[:1000]+"\r\n", 2000), 0, "", "head"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := readAnswer(strings.NewReader(tt.text))
			switch {
			case tt.err != "":
				if err == nil || !strings.Contains(err.Error(), tt.err) || len(err.Error()) > 200 {
					t.Errorf("error %v, want %q", err, tt.err)
				}
			case err != nil || a.Code != tt.code || string(a.Body) != tt.body:
				t.Errorf("got %d, %d bytes, %v", a.Code, len(a.Body), err)
			}
		})
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
	f.Add([]byte("HTTP/1.0 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\n{}"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := readAnswer(bytes.NewReader(text))
		if err == nil && (a.Code < -99 || a.Code > 999 || len(a.Body) > MaxBody) {
			t.Errorf("%q was read as %d, %d bytes", text, a.Code, len(a.Body))
		}
	})
}
