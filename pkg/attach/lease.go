package attach

import (
	"context"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Lease is Add for an interface that the kernel does not have, since a program in the container drives the device: it asks IPAM for
// addresses, and reports them.
func Lease(ctx context.Context, r *plugin.Request, c *Config, own *types100.Interface) (_ *types100.Result, err error) {
	a := &Attachment{Request: r, Config: c}
	if a.ipam, err = findIPAM(r, c); err != nil {
		return nil, err
	}
	defer a.Undo.OnError(ctx, &err)
	if err := a.lease(ctx); err != nil {
		return nil, err
	}
	a.Result.Interfaces = []*types100.Interface{own}
	for _, ip := range a.Result.IPs {
		ip.Interface = new(int)
	}
	return &a.Result, nil
}

// CheckLease makes sure that the lease is there.
func CheckLease(ctx context.Context, r *plugin.Request, c *Config) error {
	ipam, err := findIPAM(r, c)
	if err != nil || ipam == nil {
		return err
	}
	return ipam.Check(ctx, r)
}
