package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// printAttachments prints a table.
func printAttachments(w io.Writer, list []*node.Attachment, f *showFlags) {
	hasPods := slices.ContainsFunc(list, func(a *node.Attachment) bool { return a.Pod != "" })
	head := []string{"NETWORK", "CONTAINER", "POD", "INTERFACE", "ADDRESSES", "HOST-END", "STATE", "AGE", "PORTS", "NAMESPACE", "WHY"}
	if f.watch { // which does not change by itself
		head[7] = "SINCE"
	}
	columns := []int{0, 1, 2, 3, 4, 5, 6, 7, 8}
	if !hasPods {
		columns = slices.Delete(columns, 2, 3)
	}
	if f.wide {
		columns = append(columns, 9, 10)
	}
	g := ui.NewGrid(pick(head, columns)...)
	short := ui.ShortIDs(list)
	if f.sort == "" {
		list = inOrder(list)
	}
	for _, a := range list {
		id := short[a.ContainerID]
		if f.wide {
			id = a.ContainerID
		}
		if id == "" {
			id = a.Owner // as much of the key as is known
		}
		cells := []string{ui.Harmless(a.Network), ui.Harmless(id), ui.Harmless(a.Pod), ui.Harmless(a.IfName), ui.AddressesOf(a, f.wide), hostEndOf(a),
			stateOf(a), f.when(a.Since), portsOf(a), ui.Harmless(a.Netns), ui.Harmless(a.Why)}
		g.Add(pick(cells, columns)...)
	}
	g.Print(w)
}

// inOrder returns attachments in the order that a table has where none is asked for.
func inOrder(list []*node.Attachment) []*node.Attachment {
	return slices.SortedStableFunc(slices.Values(list), func(a, b *node.Attachment) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), a.Address().Compare(b.Address()))
	})
}

func pick(cells []string, columns []int) (picked []string) {
	for _, c := range columns {
		picked = append(picked, cells[c])
	}
	return picked
}

func portsOf(a *node.Attachment) string {
	var texts []string
	for _, p := range a.Ports {
		texts = append(texts, portText(p))
	}
	return ui.Harmless(strings.Join(texts, ", "))
}

func portText(p node.Port) string {
	to := "?"
	if p.ContainerPort != 0 {
		to = fmt.Sprint(p.ContainerPort)
	}
	return fmt.Sprintf("%s->%s/%s", p.Host(), to, p.Protocol)
}

// when says since when something is there.
func (f *showFlags) when(since *time.Time) string {
	switch {
	case since == nil:
		return ""
	case !f.watch:
		return ui.Age(*since)
	case time.Since(*since) > 24*time.Hour:
		return since.Local().Format(time.DateOnly)
	}
	return since.Local().Format(time.TimeOnly)
}

// colourOf returns the colour of a state.
func colourOf(s node.State) text.Colors {
	return map[node.State]text.Colors{node.Alive: ui.Good, node.Gone: ui.Bad, node.Replaced: ui.Bad, node.Unknown: ui.Weak}[s]
}

// stateOf is an attachment's state, and whether its addresses are not its own.
func stateOf(a *node.Attachment) string {
	text := colourOf(a.State).Sprint(a.State)
	if a.Twice != nil {
		text += ui.Bad.Sprint(", address twice")
	}
	if a.Unleased != nil {
		text += ui.Bad.Sprint(", no lease")
	}
	return text
}
