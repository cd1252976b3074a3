package attach

import (
	"context"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// CheckLease makes sure that the lease is there.
func CheckLease(ctx context.Context, r *plugin.Request, c *Config) error {
	ipam, err := findIPAM(r, c)
	if err != nil || ipam == nil {
		return err
	}
	return ipam.Check(ctx, r)
}
