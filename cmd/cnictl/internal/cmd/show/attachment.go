package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

func printAttachment(w io.Writer, s *lookup.Attachment, by string, f *showFlags) {
	title(w, "container", cmp.Or(s.ContainerID, s.Owner), by)
	g := ui.NewGrid()
	line := func(name string, parts ...string) {
		if value := strings.Join(parts, ""); value != "" {
			g.Add("  "+name, value)
		}
	}
	line("pod", ui.Harmless(s.Pod))
	line("network", ui.Harmless(s.Network), in(ui.Harmless(s.Conflist)))
	line("plugins", ui.Harmless(strings.Join(s.Plugins, ", ")))
	line("interface", ui.Harmless(s.IfName))
	line("state", stateOf(s.Attachment), ": ", ui.Harmless(s.Why))
	if s.Since != nil {
		line("since", s.Since.Local().Format(time.DateTime), in(f.ageUnlessWatched(*s.Since)))
	}
	if s.Namespace != nil {
		line("namespace", namespaceText(s.Namespace))
	} else {
		line("namespace", ui.Harmless(s.Netns))
	}
	for i, owner := range s.Beside {
		line(first(i, "also in it"), ui.Harmless(owner))
	}
	line("inside", insideText(s))
	if s.HostEnd != nil {
		line("host end", linkText(s.HostEnd))
	} else {
		line("behind", ui.Harmless(s.Master))
	}
	for i, text := range addressTexts(s) {
		line(first(i, "addresses"), text)
	}
	for i, owner := range s.Twice {
		line(first(i, "addresses also of"), ui.Harmless(owner))
	}
	for i, g := range s.Gateways {
		line(first(i, "gateways"), g.String())
	}
	for i, text := range routeTexts(s) {
		line(first(i, "routes"), text)
	}
	for i, p := range s.Ports {
		line(first(i, "ports"), ui.Harmless(portText(p)))
	}
	if s.Limits != nil {
		line("limits", s.Limits.String())
	}
	if s.Reach != nil {
		line("reaches", ui.Harmless(s.Reach.String()))
		line("refused", s.Reach.Refusals())
	}
	for i, o := range s.Opened {
		line(first(i, "open by name"), fmt.Sprintf("%s, as %s, until %s", o.Address, ui.Harmless(o.Name), o.Until.Local().Format(time.DateTime)))
	}
	for i, t := range s.Held {
		line(first(i, "holds"), ui.Harmless(t.Plugin), ": ", ui.Harmless(t.What), f.sinceText(t.Since))
	}
	line("result", ui.Harmless(s.Cache))
	for i, o := range s.Others {
		line(first(i, "older"), ui.Harmless(o.File), in(o.Written.Local().Format(time.DateTime)))
	}
	g.Print(w)
}

// first returns a name for the first of several lines.
func first(i int, name string) string {
	if i > 0 {
		return ""
	}
	return name
}

// in returns a text in brackets, if there is one.
func in(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

func (f *showFlags) ageUnlessWatched(since time.Time) string {
	if f.watch {
		return ""
	}
	return ui.Age(since)
}

func (f *showFlags) sinceText(since *time.Time) string {
	if since == nil {
		return ""
	}
	return ", since " + f.when(since)
}

func namespaceText(s *lookup.InNamespace) string {
	parts := append([]string{}, s.Paths...)
	parts = append(parts, fmt.Sprintf("inode %d", s.Inode))
	if s.PID != 0 {
		parts = append(parts, fmt.Sprintf("process %d%s", s.PID, in(s.Command)))
	}
	return ui.Harmless(strings.Join(parts, ", "))
}

// insideText says what the interface is inside of the namespace, and where that is not what ADD said.
func insideText(s *lookup.Attachment) string {
	switch {
	case s.Inside == nil:
		return ""
	case s.Inside.Error != "":
		return ui.Bad.Sprint("can't be looked at: ") + ui.Harmless(s.Inside.Error)
	case s.Inside.Interface == nil:
		return ui.Bad.Sprintf("there is no %s", ui.Harmless(s.IfName)) + "; there is " + ui.Harmless(strings.Join(s.Inside.Others, ", "))
	}
	text := interfaceText(*s.Inside.Interface)
	if s.MAC != "" && !strings.EqualFold(s.MAC, s.Inside.Interface.MAC) {
		text += ", " + ui.Bad.Sprintf("was %s", ui.Harmless(s.MAC))
	}
	return text
}

// Marks of what is inside and what ADD said.
const notThere, notOfADD = "  not there any more", "  not of ADD"

// addressTexts are the addresses that ADD gave, and those that are inside besides.
func addressTexts(s *lookup.Attachment) (texts []string) {
	for _, p := range s.Addresses {
		text := p.String()
		if s.Inside != nil && slices.Contains(s.Inside.Missing, p) {
			text += ui.Bad.Sprint(notThere)
		}
		texts = append(texts, text)
	}
	if s.Inside != nil {
		for _, p := range s.Inside.Foreign {
			texts = append(texts, p.String()+ui.Weak.Sprint(notOfADD))
		}
	}
	return texts
}

// routeTexts are the routes that ADD gave, and those that are inside besides.
func routeTexts(s *lookup.Attachment) (texts []string) {
	for _, r := range s.Routes {
		text := routeText(r)
		if s.Inside != nil && slices.Contains(s.Inside.MissingRoutes, r) {
			text += ui.Bad.Sprint(notThere)
		}
		texts = append(texts, text)
	}
	if s.Inside != nil {
		for _, r := range s.Inside.ForeignRoutes {
			texts = append(texts, routeText(r)+ui.Weak.Sprint(notOfADD))
		}
	}
	return texts
}

// interfaceText describes an interface inside of a namespace.
func interfaceText(i node.Interface) string {
	return ui.Harmless(strings.Join(ui.NonEmpty(i.Name, i.Kind, i.MAC, fmt.Sprintf("mtu %d", i.MTU), upText(i.Up)), ", "))
}

func upText(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

func linkText(l *node.Link) string {
	parts := ui.NonEmpty(l.Name, l.Kind, l.MAC, fmt.Sprintf("mtu %d", l.MTU), upText(l.Up))
	if l.Master != "" {
		parts = append(parts, "port of "+l.Master)
	}
	if l.Parent != "" {
		parts = append(parts, "on "+l.Parent)
	}
	return ui.Harmless(strings.Join(parts, ", "))
}

func routeText(r node.Route) string {
	to := r.Destination.String()
	if r.Destination.Bits() == 0 {
		to = "default"
	}
	if r.Gateway.IsValid() {
		to += " via " + r.Gateway.String()
	}
	return to
}
