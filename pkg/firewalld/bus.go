package firewalld

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds a connection from its start, when the context does not. A
// call takes some ten milliseconds, and waits while firewalld serves others.
const patience = 10 * time.Second

// errNoBus says that nothing listens at the bus's address.
var errNoBus = errors.New("no D-Bus system bus runs")

// bus is a connection to the system bus. One goroutine at a time.
type bus struct {
	file   *os.File
	serial uint32
	ctx    context.Context // bounds all of it
	stop   func() bool
}

// dial connects to the system bus. The context, and patience, bound the whole
// life of the connection.
func dial(ctx context.Context) (*bus, error) {
	deadline := time.Now().Add(patience)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	file, err := connect(time.Until(deadline))
	if err != nil {
		return nil, err
	}
	b := &bus{file: file, ctx: ctx}
	if err := file.SetDeadline(deadline); err != nil {
		b.close()
		return nil, err
	}
	b.stop = context.AfterFunc(ctx, func() { _ = file.SetDeadline(time.Unix(1, 0)) })
	if err := b.introduce(); err != nil {
		b.close()
		return nil, fmt.Errorf("log in to the D-Bus system bus: %w", b.explain(err))
	}
	return b, nil
}

func (b *bus) close() {
	if b.stop != nil {
		b.stop()
	}
	_ = b.file.Close()
}

// connect opens the first of the bus's sockets that somebody listens at.
func connect(patience time.Duration) (*os.File, error) {
	sockets, err := busSockets()
	if err != nil {
		return nil, err
	}
	for _, s := range sockets {
		var fd int
		if fd, err = connectTo(s, patience); err == nil {
			return os.NewFile(uintptr(fd), s.Name), nil
		}
		err = fmt.Errorf("connect to the D-Bus system bus at %s: %w", s.Name, err)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: %w", errNoBus, err)
	}
	return nil, err
}

// connectTo returns a socket that the runtime can wait for.
func connectTo(s *unix.SockaddrUnix, patience time.Duration) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	// The kernel makes who connects wait while the listener's queue is full.
	timeout := unix.NsecToTimeval(max(patience, time.Millisecond).Nanoseconds())
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout)
	if err == nil {
		err = unix.Connect(fd, s)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// introduce logs in as the process's user, which the bus verifies with the
// kernel (SASL's EXTERNAL), and gets a name on the bus.
func (b *bus) introduce() error {
	uid := strconv.Itoa(os.Geteuid())
	if _, err := b.file.WriteString("\x00AUTH EXTERNAL " + hex.EncodeToString([]byte(uid)) + "\r\n"); err != nil {
		return err
	}
	answer, err := b.line()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(answer, "OK ") {
		return fmt.Errorf("user %s is refused: %q", uid, answer)
	}
	if _, err := b.file.WriteString("BEGIN\r\n"); err != nil {
		return err
	}
	_, err = b.call(busCall("Hello"))
	return err
}

// maxLine bounds a line of the login, in bytes.
const maxLine = 1024

// line reads a line. The bus sends nothing behind it before it is answered.
func (b *bus) line() (string, error) {
	buffer := make([]byte, maxLine)
	for have := 0; have < maxLine; {
		n, err := b.file.Read(buffer[have:])
		if err != nil {
			return "", err
		}
		have += n
		if end := bytes.IndexByte(buffer[:have], '\n'); end >= 0 {
			return strings.TrimSpace(string(buffer[:end])), nil
		}
	}
	return "", fmt.Errorf("%w: a line of more than %d bytes", errMalformed, maxLine)
}

// busCall is a call of the bus itself.
func busCall(member string, args ...string) call {
	return call{"org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", member, args}
}

// busError is an answer that says that a call failed.
type busError struct {
	name string // such as org.freedesktop.DBus.Error.AccessDenied
	text string
}

func (e *busError) Error() string {
	if e.text == "" {
		return e.name
	}
	return e.text + " (" + e.name + ")"
}

// call calls a method and returns the answer's body.
func (b *bus) call(c call) (reply message, err error) {
	b.serial++
	if _, err := b.file.Write(c.marshal(b.serial)); err != nil {
		return reply, b.explain(err)
	}
	for {
		m, err := readMessage(b.file)
		if err != nil {
			return reply, b.explain(err)
		}
		if m.replySerial != b.serial {
			continue // a signal, such as that we have got a name
		}
		switch m.typ {
		case typeReturn:
			return m, nil
		case typeError:
			failed := &busError{name: m.errorName}
			if strings.HasPrefix(m.signature, "s") {
				failed.text = m.body.str()
			}
			return reply, failed
		}
	}
}

// explain says why the connection gave up, where the file only knows that it
// did.
func (b *bus) explain(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if cause := context.Cause(b.ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("no answer in time: %w", err)
}

// str calls a method that returns a string.
func (b *bus) str(c call) (string, error) {
	reply, err := b.call(c)
	if err != nil {
		return "", err
	}
	if reply.signature != "s" {
		return "", fmt.Errorf("%s: %w: returns %q", c.member, errMalformed, reply.signature)
	}
	return reply.body.str(), reply.body.err
}

// truth calls a method that returns a boolean.
func (b *bus) truth(c call) (bool, error) {
	reply, err := b.call(c)
	if err != nil {
		return false, err
	}
	if reply.signature != "b" {
		return false, fmt.Errorf("%s: %w: returns %q", c.member, errMalformed, reply.signature)
	}
	return reply.body.u32() != 0, reply.body.err
}
