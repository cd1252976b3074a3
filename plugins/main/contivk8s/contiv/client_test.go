package contiv

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
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

// A daemon that is not there is waited for, whether its old socket is still there or not.
func TestDialWaitsForADaemonThatStarts(t *testing.T) {
	for _, left := range []bool{false, true} {
		l, socket := listen(t)
		l.SetUnlinkOnClose(!left)
		_ = l.Close()
		if _, err := Dial(t.Context(), socket, 0); err == nil {
			t.Fatal("nobody listens")
		}
		failed := make(chan error, 1)
		go func() {
			c, err := Dial(t.Context(), socket, time.Minute)
			if err == nil {
				c.Close()
			}
			failed <- err
		}()
		netlab.Pause(2 * retryEvery)
		_ = os.Remove(socket)
		again, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err != nil {
			t.Errorf("socket left %v: %v", left, err)
		}
		_ = again.Close()
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Dial(ended, filepath.Join(t.TempDir(), "none"), time.Hour); err == nil {
		t.Error("it connected")
	}
}

// No path of a namespace adds a line to the head of a request.
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
		c, err := Dial(t.Context(), socket, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Post(DelPath, Request{ContainerID: "c1"}, -1, path); err == nil {
			t.Error("no answer is no error")
		}
		c.Close()
		got := <-text
		if strings.Contains(got, "\r\n"+NetnsHeader+": "+path+"\r\n") != want || !want && strings.Contains(got, "Cni-") {
			t.Errorf("for %q it sends %q", path, got)
		}
	}
}

// TestReadAnswer is about answers in an unusual form. Rows have those that daemons give.
func TestReadAnswer(t *testing.T) {
	long := strings.Repeat("x", MaxBody+1)
	for _, tt := range []struct {
		name, text string
		code       int
		body, err  string
	}{
		{"with more behind its length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}more", 200, "{}", ""},
		{"without words", "HTTP/1.1 204 \r\n\r\n", 204, "", ""},
		{"without a blank behind the code", "HTTP/1.1 204\r\n\r\n", 204, "", ""},
		{"lines that end as in Unix", "HTTP/1.1 200 OK\nContent-Length: 2\n\n{}", 200, "{}", ""},
		{"of the longest length", "HTTP/1.1 200 OK\r\n\r\n" + long[1:], 200, long[1:], ""},
		{"a code of four", "HTTP/1.1 2000 OK\r\n\r\n", 0, "", "no answer of HTTP"},
		{"HTTP/2", "HTTP/2 200 OK\r\n\r\n", 0, "", "no answer of HTTP"},
		{"a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0, "", "length"},
		{"a length that is no number", "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}", 0, "", "length"},
		{"in pieces", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 0, "", "encoding"},
		{"a head without an end", "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+long[:1000]+"\r\n", 2000), 0, "", "head"},
	} {
		a, err := readAnswer(strings.NewReader(tt.text))
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) || len(err.Error()) > 200 {
				t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
			}
		case err != nil || a.Code != tt.code || string(a.Body) != tt.body:
			t.Errorf("%s: got %d, %d bytes, %v", tt.name, a.Code, len(a.Body), err)
		}
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
