package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/pkg/node"
)

func printAttachment(w io.Writer, s *lookup.Attachment, by string, f *showFlags) {
	title(w, "container", cmp.Or(s.ContainerID, s.Owner), by)
	g := newGrid()
	line := func(name string, parts ...string) {
		if value := strings.Join(parts, ""); value != "" {
			g.add("  "+name, value)
		}
	}
	line("pod", harmless(s.Pod))
	line("network", harmless(s.Network), in(harmless(s.Conflist)))
	line("plugins", harmless(strings.Join(s.Plugins, ", ")))
	line("interface", harmless(s.IfName))
	line("state", stateOf(s.Attachment), ": ", harmless(s.Why))
	if s.Since != nil {
		line("since", s.Since.Local().Format(time.DateTime), in(f.ageUnlessWatched(*s.Since)))
	}
	if s.Namespace != nil {
		line("namespace", namespaceText(s.Namespace))
	} else {
		line("namespace", harmless(s.Netns))
	}
	for i, owner := range s.Beside {
		line(first(i, "also in it"), harmless(owner))
	}
	line("inside", insideText(s))
	if s.HostEnd != nil {
		line("host end", linkText(s.HostEnd))
	} else {
		line("behind", harmless(s.Master))
	}
	for i, text := range addressTexts(s) {
		line(first(i, "addresses"), text)
	}
	for i, owner := range s.Twice {
		line(first(i, "addresses also of"), harmless(owner))
	}
	for i, g := range s.Gateways {
		line(first(i, "gateways"), g.String())
	}
	for i, text := range routeTexts(s) {
		line(first(i, "routes"), text)
	}
	for i, p := range s.Ports {
		line(first(i, "ports"), harmless(portText(p)))
	}
	if s.Limits != nil {
		line("limits", s.Limits.String())
	}
	for i, t := range s.Held {
		line(first(i, "holds"), harmless(t.Plugin), ": ", harmless(t.What), f.sinceText(t.Since))
	}
	line("result", harmless(s.Cache))
	for i, o := range s.Others {
		line(first(i, "older"), harmless(o.File), in(o.Written.Local().Format(time.DateTime)))
	}
	g.print(w)
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
	return age(since)
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
	return harmless(strings.Join(parts, ", "))
}

// insideText says what the interface is inside of the namespace, and where that is not what ADD said.
func insideText(s *lookup.Attachment) string {
	switch {
	case s.Inside == nil:
		return ""
	case s.Inside.Error != "":
		return bad.Sprint("can't be looked at: ") + harmless(s.Inside.Error)
	case s.Inside.Interface == nil:
		return bad.Sprintf("there is no %s", harmless(s.IfName)) + "; there is " + harmless(strings.Join(s.Inside.Others, ", "))
	}
	text := interfaceText(*s.Inside.Interface)
	if s.MAC != "" && !strings.EqualFold(s.MAC, s.Inside.Interface.MAC) {
		text += ", " + bad.Sprintf("was %s", harmless(s.MAC))
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
			text += bad.Sprint(notThere)
		}
		texts = append(texts, text)
	}
	if s.Inside != nil {
		for _, p := range s.Inside.Foreign {
			texts = append(texts, p.String()+weak.Sprint(notOfADD))
		}
	}
	return texts
}

// routeTexts are the routes that ADD gave, and those that are inside besides.
func routeTexts(s *lookup.Attachment) (texts []string) {
	for _, r := range s.Routes {
		text := routeText(r)
		if s.Inside != nil && slices.Contains(s.Inside.MissingRoutes, r) {
			text += bad.Sprint(notThere)
		}
		texts = append(texts, text)
	}
	if s.Inside != nil {
		for _, r := range s.Inside.ForeignRoutes {
			texts = append(texts, routeText(r)+weak.Sprint(notOfADD))
		}
	}
	return texts
}

// interfaceText describes an interface inside of a namespace.
func interfaceText(i node.Interface) string {
	return harmless(strings.Join(compact(i.Name, i.Kind, i.MAC, fmt.Sprintf("mtu %d", i.MTU), upText(i.Up)), ", "))
}

func upText(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

func linkText(l *node.Link) string {
	parts := compact(l.Name, l.Kind, l.MAC, fmt.Sprintf("mtu %d", l.MTU), upText(l.Up))
	if l.Master != "" {
		parts = append(parts, "port of "+l.Master)
	}
	if l.Parent != "" {
		parts = append(parts, "on "+l.Parent)
	}
	return harmless(strings.Join(parts, ", "))
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
