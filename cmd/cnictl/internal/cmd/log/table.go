package log

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/calllog"
)

// printCalls prints calls as a table.
func printCalls(w io.Writer, list []calllog.Call, wide bool) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no such calls in the log")
		return
	}
	head := []string{"TIME", "VERB", "PLUGIN", "NETWORK", "CONTAINER", "INTERFACE", "TOOK"}
	if wide {
		head = append(head, "POD", "NETNS", "PID", "TRACE")
	}
	g := ui.NewGrid(append(head, "RESULT")...)
	for _, c := range list {
		g.Add(cells(&c, wide)...)
	}
	g.Print(w)
}

// streamed returns a call as a line of its own, in columns as wide as most are.
func streamed(c *calllog.Call, wide bool) string {
	var line strings.Builder
	widths := []int{23, 6, 10, 10, 16, 9, 8}
	row := cells(c, wide)
	for i, cell := range row[:len(row)-1] {
		width := 0
		if i < len(widths) {
			width = widths[i]
		}
		fmt.Fprintf(&line, "%-*s  ", width, cell)
	}
	return line.String() + row[len(row)-1]
}

// cells are the columns of a call.
func cells(c *calllog.Call, wide bool) []string {
	container, most := cmp.Or(c.Pod, shortID(c.ContainerID)), 100
	if wide {
		container, most = c.ContainerID, 1<<20
	}
	row := []string{
		c.Time.Local().Format("2006-01-02 15:04:05.000"), ui.Harmless(c.Verb), ui.Harmless(c.Plugin), ui.Harmless(c.Network), ui.Harmless(container), ui.Harmless(c.IfName),
		fmt.Sprintf("%.1f ms", float64(c.Took.Microseconds())/1000),
	}
	if wide {
		row = append(row, ui.Harmless(c.Pod), ui.Harmless(c.Netns), fmt.Sprint(c.PID), ui.Harmless(c.TraceID))
	}
	return append(row, resultOf(c, most))
}

// resultOf says what came of a call, an error in so many characters at most.
func resultOf(c *calllog.Call, most int) string {
	if c.Error == nil {
		return cmp.Or(ui.Harmless(strings.Join(c.Addresses, " ")), ui.Good.Sprint("ok"))
	}
	text := []rune(ui.Harmless(c.Error.Msg))
	if len(text) > most {
		text = append(text[:most-1], '…')
	}
	return ui.Bad.Sprintf("error %d", c.Error.Code) + ": " + string(text)
}

// shortID is as much of a container id as people need.
func shortID(id string) string {
	const long, most = 32, 12
	if len(id) > long {
		return id[:most]
	}
	return id
}

// addressHolder is an attachment that had an address, as log --json prints it.
type addressHolder struct {
	Network     string     `json:"network"`
	ContainerID string     `json:"containerID"`
	IfName      string     `json:"ifname"`
	Pod         string     `json:"pod,omitempty"`
	From        time.Time  `json:"from"`
	To          *time.Time `json:"to,omitempty"`       // none if it still has it
	Replaced    bool       `json:"replaced,omitempty"` // there is no DEL: To is when another one got it
}

func addressHolders(list []*calllog.Holder) []addressHolder {
	all := []addressHolder{}
	for _, h := range list {
		one := addressHolder{Network: h.Network, ContainerID: h.ContainerID, IfName: h.IfName, Pod: h.Pod, From: h.From, Replaced: h.Replaced}
		if !h.To.IsZero() {
			one.To = &h.To
		}
		all = append(all, one)
	}
	return all
}

// printHolders says who had an address, by a log that begins at some time.
func printHolders(w io.Writer, address netip.Addr, list []addressHolder, begins time.Time) {
	if len(list) == 0 {
		fmt.Fprintf(w, "nobody had %s, by what the log has", address)
		if !begins.IsZero() {
			fmt.Fprint(w, " since ", moment(begins))
		}
		fmt.Fprintln(w)
		return
	}
	g := ui.NewGrid("FROM", "TO", "FOR", "NETWORK", "CONTAINER", "INTERFACE", "POD")
	for _, h := range list {
		to, end := ui.Good.Sprint("has it still"), time.Now()
		if h.To != nil {
			to, end = moment(*h.To), *h.To
		}
		if h.Replaced {
			to += ui.Weak.Sprint(" (no DEL)")
		}
		g.Add(moment(h.From), to, end.Sub(h.From).Round(time.Second).String(), ui.Harmless(h.Network), ui.Harmless(h.ContainerID), ui.Harmless(h.IfName), ui.Harmless(h.Pod))
	}
	g.Print(w)
}

// moment is a time for people, in their time zone.
func moment(t time.Time) string { return t.Local().Format(time.DateTime) }
