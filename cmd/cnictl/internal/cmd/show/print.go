package show

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// fewMatches are printed as sheets; of more attachments there is a table.
const fewMatches = 3

// shownName is what `show NAME` prints.
type shownName struct{ *lookup.Found }

func (s shownName) print(w io.Writer, f *showFlags) {
	var attachments []*node.Attachment
	for _, m := range s.Matches {
		if m.Attachment != nil {
			attachments = append(attachments, m.Attachment.Attachment)
		}
	}
	if len(attachments) > fewMatches {
		fmt.Fprintf(w, "%d attachments are called %s; name one of them, or see all about each with --json\n\n", len(attachments), ui.Harmless(s.Name))
		printAttachments(w, attachments, f)
	}
	for i, m := range s.Matches {
		if m.Attachment != nil && len(attachments) > fewMatches {
			continue
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		switch {
		case m.Attachment != nil:
			printAttachment(w, m.Attachment, m.By, f)
		case m.Network != nil:
			title(w, "network", m.Network.Name, "")
			printNetworks(w, []*node.Network{m.Network.Network})
			printAttached(w, m.Network.Attached, f)
		case m.Link != nil:
			printLink(w, m.Link, m.By, f)
		case m.Namespace != nil:
			printNamespace(w, m.Namespace, m.By)
		case m.Subnet != nil:
			printSubnet(w, m.Subnet, f)
		case m.Address != nil:
			fmt.Fprintf(w, "address %s  %s\n", text.Bold.Sprint(m.Address.Address), addressText(m.Address))
		}
	}
}

func addressText(s *lookup.Address) string {
	text := "free"
	switch {
	case s.Gateway:
		text = "not handed out: the gateway"
	case s.Held != nil:
		text = "held for nobody who is known"
	}
	text += fmt.Sprintf(", of the pool %s of network %s", s.Pool.Name(), ui.Harmless(s.Network))
	if s.Last != nil {
		text += fmt.Sprintf("; %s%s had it from %s", ui.Harmless(s.Last.Owner), in(ui.Harmless(s.Last.Pod)), s.Last.From.Local().Format(time.DateTime))
		if !s.Last.To.IsZero() {
			text += " to " + s.Last.To.Local().Format(time.DateTime)
		}
	}
	return text
}

// title begins a sheet.
func title(w io.Writer, kind, name, by string) {
	fmt.Fprintf(w, "%s %s", kind, text.Bold.Sprint(ui.Harmless(name)))
	if by != kind && by != "" {
		fmt.Fprintf(w, "  (found by %s)", by)
	}
	fmt.Fprintln(w)
}

func prefixes(list []netip.Prefix) string {
	var texts []string
	for _, p := range list {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

func printLink(w io.Writer, s *lookup.Link, by string, f *showFlags) {
	title(w, "link", s.Name, by)
	g := ui.NewGrid()
	g.Add("  is", linkText(s.Link))
	if len(s.Addresses) > 0 {
		g.Add("  addresses", prefixes(s.Addresses))
	}
	if s.Owner != "" {
		g.Add("  made for", ui.Harmless(s.Owner))
	}
	if len(s.Others) > 0 {
		g.Add("  other links", ui.Harmless(strings.Join(s.Others, ", ")))
	}
	g.Print(w)
	printAttached(w, s.Attached, f)
}

func printAttached(w io.Writer, list []*node.Attachment, f *showFlags) {
	if len(list) > 0 {
		fmt.Fprintln(w)
		printAttachments(w, list, f)
	}
}

func printNamespace(w io.Writer, s *lookup.Namespace, by string) {
	title(w, "namespace", s.Path(), by)
	g := ui.NewGrid()
	g.Add("  is", namespaceText(&s.InNamespace))
	g.Add("  attachments", "none that is known")
	for i, e := range s.Interfaces {
		g.Add("  "+first(i, "inside"), interfaceText(e)+": "+prefixes(e.Addresses))
	}
	if s.Error != "" {
		g.Add("  inside", ui.Bad.Sprint("can't be looked at: ")+ui.Harmless(s.Error))
	}
	g.Print(w)
}

func printSubnet(w io.Writer, s *lookup.Subnet, f *showFlags) {
	title(w, "subnet", s.Subnet.String(), "")
	g := ui.NewGrid()
	for _, p := range s.Pools {
		g.Add("  pool", p.Name(), "network "+ui.Harmless(p.Network), fmt.Sprintf("%d of %s used", p.Used, p.SizeText()), fullness(p.Pool))
	}
	g.Print(w)
	printAttached(w, s.Attached, f)
}
