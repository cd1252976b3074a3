// Package container answers which container a name means.
package container

import (
	"context"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Container is one that a name means.
type Container struct {
	Netns       string             // path of its network namespace
	Attachments []*node.Attachment // that the name means, of which all are in there; none if it is a namespace that nobody attached
}

// Find returns the container that a name means.
func Find(ctx context.Context, o node.Options, name string) (*Container, error) {
	return FindOn(node.Read(ctx, o), name)
}

// FindOn returns the container that a name means on a node.
func FindOn(n *node.Node, name string) (*Container, error) {
	var alive, all []*node.Attachment
	for _, m := range n.Find(name) {
		all = append(all, m.Attachment)
		if !m.Attachment.State.IsOver() && m.Attachment.Namespace != nil {
			alive = append(alive, m.Attachment)
		}
	}
	for _, a := range alive {
		if a.Namespace != alive[0].Namespace {
			return nil, plugin.CodeErrorf(types.ErrUnknownContainer, "name one of them, by its container's id, for example", "%s may be any of %s", name, Owners(alive))
		}
	}
	switch {
	case alive != nil:
		return &Container{alive[0].Namespace.Path(), alive}, nil
	case all != nil:
		return nil, plugin.CodeErrorf(types.ErrInvalidNetNS, "cnictl gc frees what is left over of it", "%s has no network namespace any more: %s", Owners(all), all[0].Why)
	}
	if i := slices.IndexFunc(n.Namespaces, func(s *node.Namespace) bool { return s.Is(name) }); i >= 0 {
		return &Container{Netns: n.Namespaces[i].Path()}, nil
	}
	if strings.Contains(name, "/") {
		return &Container{Netns: name}, nil // a path that is not mounted where we look
	}
	if _, err := lookup.Find(n, name); err != nil {
		return nil, err
	}
	return nil, plugin.CodeErrorf(types.ErrUnknownContainer, "cnictl show lists containers", "%s is no container and no namespace", name)
}

// Owners names attachments in an error.
func Owners(list []*node.Attachment) string {
	var names []string
	for _, a := range list {
		names = append(names, ui.Harmless(a.Owner))
	}
	return strings.Join(names, ", ")
}
