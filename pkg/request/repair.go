package request

import (
	"context"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Repair has a plugin put back what its CHECK finds missing. It returns what CHECK finds, nil if nothing is missing, and what is left of that in
// the end: all of it where the plugin can't repair. The request is that of a CHECK.
func Repair(ctx context.Context, p plugin.Plugin, r *plugin.Request) (found, left error) {
	found, left = PutBack(ctx, p, r)
	if found == nil || left != nil {
		return found, left
	}
	return found, p.Check(ctx, r)
}

// PutBack is Repair, but for CHECK's word in the end: left is nil if nothing has failed.
func PutBack(ctx context.Context, p plugin.Plugin, r *plugin.Request) (found, left error) {
	found = p.Check(ctx, r)
	repairer, can := p.(plugin.Repairer)
	if found == nil || !can {
		return found, found
	}
	r.Found = found
	return found, repairer.Repair(ctx, r)
}
