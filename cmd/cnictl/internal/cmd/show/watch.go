package show

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// between two looks at the node.
const pause = time.Second

// changes is how many lines about the past a screen has at its end.
const changes = 8

// watchNode looks at the node again and again. On a terminal it draws a screen anew, anywhere else it prints what has changed.
func (f *showFlags) watchNode(cmd *cobra.Command, look func(*node.Node) (shown, error)) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s := screen{terminal: terminal(cmd)}
	if err := s.open(); err != nil {
		return err
	}
	defer s.close()
	last := ""
	for {
		n := node.Read(ctx, f.Options)
		what, err := look(n)
		switch {
		case ctx.Err() != nil: // the node may have been read in part
			return nil
		case s.terminal != nil:
			err = s.draw(f.frame(n, what, err))
		case err != nil:
			return err
		default:
			var now []byte
			if now, err = f.text(cmd, what); err == nil && string(now) != last {
				last = string(now)
				f.noteUnread(cmd.ErrOrStderr(), n)
				err = ui.Write(cmd, now)
			}
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// text is what is printed where no terminal is.
func (f *showFlags) text(cmd *cobra.Command, what shown) ([]byte, error) {
	if ui.WantsJSON(cmd) {
		return ui.AsJSON(what)
	}
	var w bytes.Buffer
	what.print(&w, f)
	fmt.Fprintln(&w)
	return w.Bytes(), nil
}

// frame is the text of a screen.
func (f *showFlags) frame(n *node.Node, what shown, err error) string {
	var w bytes.Buffer
	if err != nil { // what is looked for may come
		fmt.Fprintln(&w, err)
		return w.String()
	}
	what.print(&w, f)
	f.noteUnread(&w, n)
	return w.String()
}

// terminal returns the terminal to draw on, nil if there is none or JSON is wanted.
func terminal(cmd *cobra.Command) *os.File {
	file, ok := cmd.OutOrStdout().(*os.File)
	if !ok || ui.WantsJSON(cmd) || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return file
}

// screen is a terminal of which all is drawn, on a page of its own: what was on it before is there again at the end.
type screen struct {
	terminal *os.File
	lines    []string // of the last frame
	past     []string // what lines were taken away and added, the newest last
}

func (s *screen) open() error {
	if s.terminal == nil {
		return nil
	}
	_, err := s.terminal.WriteString("\x1b[?1049h\x1b[?25l")
	return err
}

func (s *screen) close() {
	if s.terminal != nil {
		_, _ = s.terminal.WriteString("\x1b[?25h\x1b[?1049l")
	}
}

// draw draws a frame over the last one. Lines that were not there are marked, and those that have come or gone are listed at the end.
func (s *screen) draw(frame string) error {
	lines := strings.Split(strings.TrimRight(frame, "\n"), "\n")
	added, removed := without(upToEmpty(lines), s.lines), without(upToEmpty(s.lines), lines)
	if s.lines != nil {
		now := time.Now().Format("15:04:05")
		for _, l := range removed {
			s.past = append(s.past, ui.Weak.Sprint(now+" - ")+words(l))
		}
		for _, l := range added {
			s.past = append(s.past, ui.Good.Sprint(now+" + ")+words(l))
		}
		s.past = s.past[max(len(s.past)-changes, 0):]
	}
	width, height, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil {
		width, height = 80, 24
	}
	var out strings.Builder
	out.WriteString("\x1b[H")
	for _, l := range s.fit(lines, added, height) {
		out.WriteString(text.Snip(l, width-1, "…") + text.EscapeReset + "\x1b[K\r\n") // in the last column the end of the line would be erased
	}
	out.WriteString("\x1b[J" + text.Trim(text.Faint.Sprint(time.Now().Format("15:04:05")+"  Ctrl-C ends"), width))
	s.lines = lines
	_, err = s.terminal.WriteString(out.String())
	return err
}

// fit returns as many lines as a screen has, but for the last.
func (s *screen) fit(lines, added []string, height int) (fitting []string) {
	room := max(height-1, 1)
	if len(s.past) > 0 {
		room = max(room-len(s.past)-1, 1)
	}
	for i, l := range lines {
		if i == room-1 && len(lines) > room {
			fitting = append(fitting, text.Faint.Sprintf("... %d more lines; a table of a network is shorter: --network", len(lines)-i))
			break
		}
		if s.lines != nil && slices.Contains(added, l) {
			l = text.ReverseVideo.Sprint(text.StripEscape(l))
		}
		fitting = append(fitting, l)
	}
	if len(s.past) > 0 {
		fitting = append(append(fitting, ""), s.past...)
	}
	return fitting
}

// upToEmpty returns the lines that are not counted from others: what follows an empty one sums up.
func upToEmpty(lines []string) []string {
	if i := slices.Index(lines, ""); i >= 0 {
		return lines[:i]
	}
	return lines
}

// without returns the lines that are not among others. Columns may have become wider, which is no change.
func without(lines, others []string) (list []string) {
	known := map[string]bool{}
	for _, l := range others {
		known[words(l)] = true
	}
	for _, l := range lines {
		if !known[words(l)] {
			list = append(list, l)
		}
	}
	return list
}

// words returns a line with one space between words, and no colours.
func words(line string) string { return strings.Join(strings.Fields(text.StripEscape(line)), " ") }
