package contiv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxHead is how many bytes an answer can have before its body.
const maxHead = 64 << 10

// retryEvery is how often it is tried to connect to a daemon that is not there.
const retryEvery = 20 * time.Millisecond

// Conn is a connection to a daemon, for one request.
type Conn struct {
	conn   *net.UnixConn
	forget func() bool
}

// Dial connects to the daemon at a socket. One that is not there may be starting: it is waited for as long as patience lasts. Work over
// the connection ends with ctx.
func Dial(ctx context.Context, socket string, patience time.Duration) (*Conn, error) {
	end := time.Now().Add(patience)
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil {
			c := &Conn{conn: conn.(*net.UnixConn)}
			c.forget = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
			return c, nil
		}
		if !mayBeStarting(err) || time.Now().After(end) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(retryEvery):
		}
	}
}

// mayBeStarting reports whether an error says that nobody listens, or that very many wait to be served.
func mayBeStarting(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EAGAIN)
}

// Close ends the connection.
func (c *Conn) Close() {
	c.forget()
	_ = c.conn.Close()
}

// Post sends a request to a path and returns the answer. The network namespace, if there is one, is an open file, and has a path in the
// runtime's eyes. The request is of HTTP/1.0, so that the answer comes in one piece (RFC 9112, 6.1).
func (c *Conn) Post(path string, q Request, netns int, netnsPath string) (Answer, error) {
	body := q.JSON()
	head := fmt.Sprintf("POST %s HTTP/1.0\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n", path, ContentType, len(body))
	if netnsPath != "" && isPlain(netnsPath) {
		head += NetnsHeader + ": " + netnsPath + "\r\n"
	}
	var file []byte
	if netns >= 0 {
		file = unix.UnixRights(netns)
	}
	text := append([]byte(head+"\r\n"), body...)
	n, _, err := c.conn.WriteMsgUnix(text, file, nil)
	if err == nil && n < len(text) {
		_, err = c.conn.Write(text[n:])
	}
	if err != nil {
		return Answer{}, fmt.Errorf("send the request: %w", err)
	}
	return readAnswer(c.conn)
}

// isPlain reports whether a text can stand in a header.
func isPlain(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}

// Answer is what a daemon answers.
type Answer struct {
	Code   int
	Status string // the code, and what it means in words
	Body   []byte
}

// readAnswer reads one.
func readAnswer(from io.Reader) (a Answer, err error) {
	reader := bufio.NewReader(io.LimitReader(from, maxHead+MaxBody+1))
	head := textproto.NewReader(reader)
	line, err := head.ReadLine()
	if err != nil {
		return a, fmt.Errorf("no answer: %w", err)
	}
	version, status, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(status, " ")
	a.Status = status
	if a.Code, err = strconv.Atoi(code); err != nil || len(code) != 3 || !strings.HasPrefix(version, "HTTP/1.") {
		return a, fmt.Errorf("no answer of HTTP, but %.60q", line)
	}
	header, err := head.ReadMIMEHeader()
	if err != nil {
		return a, fmt.Errorf("the head of the answer ends early, or is none: %w", err)
	}
	if header.Get("Transfer-Encoding") != "" {
		return a, errors.New("the answer comes in an encoding that was not asked for")
	}
	a.Body, err = readBody(reader, header.Get("Content-Length"))
	return a, err
}

// readBody reads a body that has a length or, if that is "", ends with the connection.
func readBody(from io.Reader, length string) ([]byte, error) {
	tooLong := fmt.Errorf("the answer is longer than %d MiB", MaxBody>>20)
	if length == "" {
		body, err := io.ReadAll(io.LimitReader(from, MaxBody+1))
		if len(body) > MaxBody {
			return nil, tooLong
		}
		return body, err
	}
	size, err := strconv.Atoi(length)
	switch {
	case err != nil || size < 0:
		return nil, fmt.Errorf("the answer has the length %.60q", length)
	case size > MaxBody:
		return nil, tooLong
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(from, body); err != nil {
		return nil, fmt.Errorf("the answer ends early: %w", err)
	}
	return body, nil
}
