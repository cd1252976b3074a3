package operator

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// watching is a `show --watch` under way.
type watching struct {
	*zoo
	cmd  *exec.Cmd
	from io.Reader
	text strings.Builder
}

// await reads until a text has come.
func (w *watching) await(text string) {
	w.Helper()
	buffer := make([]byte, 1<<16)
	for !strings.Contains(w.text.String(), text) {
		n, err := w.from.Read(buffer)
		w.text.Write(buffer[:n])
		if err != nil {
			w.Fatalf("%q did not come: %v\n%s", text, err, w.text.String())
		}
	}
}

// interrupt does what Ctrl-C does. It has to end well.
func (w *watching) interrupt() {
	w.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGINT); err != nil {
		w.Fatal(err)
	}
	if err := w.cmd.Wait(); err != nil {
		w.Error(err)
	}
}

// watch starts cnictl show --watch with its output at to.
func (z *zoo) watch(from io.Reader, to *os.File, args ...string) *watching {
	z.Helper()
	w := &watching{zoo: z, cmd: z.host.Command(netlab.Cnictl(z), append([]string{"show", "--watch"}, args...)...), from: from}
	w.cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
	w.cmd.Stdout = to
	if err := z.host.Start(w.cmd); err != nil {
		z.Fatal(err)
	}
	_ = to.Close()
	return w
}

// TestShowWatch prints anew what has changed.
func TestShowWatch(t *testing.T) {
	t.Parallel()
	z := newZoo(t)
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := z.watch(from, to, "--network", "demo")
	w.await("3 attachments")
	z.add("late", "demo", "")
	w.await("4 attachments")
	w.interrupt()
	if line(w.text.String(), "demo", "late") == "" || strings.Contains(w.text.String(), "\x1b") {
		t.Error(w.text.String())
	}
}

// TestShowWatchOnTerminal draws on a page of its own, marks what has come, and leaves the terminal as it was.
func TestShowWatchOnTerminal(t *testing.T) {
	t.Parallel()
	z := newZoo(t)
	terminal, other := openTerminal(t)
	w := z.watch(terminal, other)
	w.await("Ctrl-C ends")
	z.add("late", "edge", "")
	w.await(" + \x1b[0medge late eth0 ")
	w.interrupt()
	w.await("\x1b[?1049l")
	screen := w.text.String()
	if !strings.HasPrefix(screen, "\x1b[?1049h") || !strings.Contains(screen, "\x1b[7medge  ") {
		t.Errorf("%q", screen)
	}
	for l := range strings.SplitSeq(screen, "\r\n") {
		if strings.Contains(l, "8080") && !strings.Contains(l, "…") {
			t.Errorf("a line that is longer than the terminal is wide is not cut: %q", l)
		}
	}
}

// openTerminal returns both ends of a terminal of 100 columns.
func openTerminal(t *testing.T) (terminal, other *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	fd := int(terminal.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100})
	}
	if err != nil {
		t.Fatal(err)
	}
	other, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return terminal, other
}
