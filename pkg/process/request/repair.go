package request

import (
	"context"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Check asks a plugin for the first thing that is not as ADD has made it. It changes nothing.
func Check(ctx context.Context, p plugin.Plugin, r *plugin.Request) error {
	return plugin.Ask(ctx, p, r, plugin.Checks).First()
}

// Repair has a plugin put back what its CHECK finds missing. It returns what CHECK finds, nil if nothing is missing, and what is left of that in
// the end. The request is that of a CHECK.
func Repair(ctx context.Context, p plugin.Plugin, r *plugin.Request) (found, left error) {
	found, left = PutBack(ctx, p, r)
	if found == nil || left != nil {
		return found, left
	}
	return found, Check(ctx, p, r)
}

// PutBack is Repair, but for CHECK's word in the end: left is nil if nothing has failed.
func PutBack(ctx context.Context, p plugin.Plugin, r *plugin.Request) (found, left error) {
	m := plugin.Ask(ctx, p, r, plugin.Repairs)
	return m.First(), m.Left()
}
