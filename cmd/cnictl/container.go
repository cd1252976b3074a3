package main

import (
	"context"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/pkg/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// container is one that a name means.
type container struct {
	netns       string             // path of its network namespace
	attachments []*node.Attachment // that the name means, of which all are in there; none if it is a namespace that nobody attached
}

// findContainer returns the container that a name means.
func findContainer(ctx context.Context, o node.Options, name string) (*container, error) {
	n := node.Read(ctx, o)
	var alive, all []*node.Attachment
	for _, m := range n.Find(name) {
		all = append(all, m.Attachment)
		if !m.Attachment.State.IsOver() && m.Attachment.Namespace != nil {
			alive = append(alive, m.Attachment)
		}
	}
	for _, a := range alive {
		if a.Namespace != alive[0].Namespace {
			return nil, plugin.Errorf("name one of them, by its container's id, for example", "%s may be any of %s", name, owners(alive))
		}
	}
	switch {
	case alive != nil:
		return &container{alive[0].Namespace.Path(), alive}, nil
	case all != nil:
		return nil, plugin.Errorf("cnictl gc frees what is left over of it", "%s has no network namespace any more: %s", owners(all), all[0].Why)
	}
	if i := slices.IndexFunc(n.Namespaces, func(s *node.Namespace) bool { return s.Is(name) }); i >= 0 {
		return &container{netns: n.Namespaces[i].Path()}, nil
	}
	if strings.Contains(name, "/") {
		return &container{netns: name}, nil // a path that is not mounted where we look
	}
	if _, err := lookup.Find(n, name); err != nil {
		return nil, err
	}
	return nil, plugin.Errorf("cnictl show lists containers", "%s is no container and no namespace", name)
}

func owners(list []*node.Attachment) string {
	var names []string
	for _, a := range list {
		names = append(names, harmless(a.Owner))
	}
	return strings.Join(names, ", ")
}
