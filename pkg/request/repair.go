package request

import (
	"context"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Repair has a plugin put back what its CHECK finds missing, and returns what that finds then. The request is that of a CHECK. A plugin that
// can't repair has only its CHECK asked.
func Repair(ctx context.Context, p plugin.Plugin, r *plugin.Request) error {
	err := p.Check(ctx, r)
	repairer, can := p.(plugin.Repairer)
	if err == nil || !can {
		return err
	}
	if err := repairer.Repair(ctx, r); err != nil {
		return err
	}
	return p.Check(ctx, r)
}
