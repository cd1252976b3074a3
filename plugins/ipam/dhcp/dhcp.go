// Package dhcp gets addresses from DHCP servers, through a daemon that keeps their leases: the IPAM plugin dhcp.
package dhcp

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/state"
)

// Plugin is dhcp.
type Plugin struct{}

// Add has the daemon get a lease through the container's interface. The daemon lets go of it if the call ends before it is answered.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	if err := r.Step(ctx, "ask the DHCP daemon for a lease"); err != nil {
		return nil, err
	}
	return leaseOf(ctx, r)
}

// leaseOf calls the daemon for a result: that of a lease which is got by ADD, and is there on CHECK.
func leaseOf(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	o, err := Read(r.Config, r.Args)
	if err != nil {
		return nil, err
	}
	netns, err := filepath.Abs(r.Netns) // the daemon has another working directory
	if err != nil {
		return nil, err
	}
	q := &Request{Command: r.Command, Key: r.Key, Netns: netns, Args: r.Args, IPAM: r.Config.Object("ipam")}
	answer, err := call(ctx, o.Socket, q)
	if err != nil {
		return nil, err
	}
	return result.Parse(answer.Object("result"), plugin.CurrentVersion)
}

// Del has the daemon release the lease, which it has sent to the server when it answers. If the daemon is down it does so at its next
// start.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	return release(ctx, socketOf(r), r.Key)
}

func release(ctx context.Context, socket string, key plugin.Key) error {
	q := &Request{Command: plugin.Del, Key: key}
	_, err := call(ctx, socket, q)
	if !errors.Is(err, errDown) {
		return err
	}
	queued, err := DirOf(socket).queue(key)
	if err != nil || !queued {
		return err
	}
	// It may have been started meanwhile, and have read the queue before this was in it.
	if _, err := call(ctx, socket, q); !errors.Is(err, errDown) {
		return err
	}
	return nil
}

// Mend compares the lease that the daemon keeps with the previous result. It asks no server, and only a restart helps.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, _ *plugin.Mender) error {
	is, err := leaseOf(ctx, r)
	if err != nil || r.PrevResult == nil {
		return err
	}
	was := result.PrefixesOf(r.PrevResult, r.IfName)
	for _, address := range result.Prefixes(is.IPs) {
		if !slices.Contains(was, address) {
			return plugin.Errorf("restart the container, so that it uses the address that it has a lease of",
				"dhcp: the lease is of %s, which ADD did not report", address)
		}
	}
	return nil
}

// Status reports whether the configuration is valid and the daemon answers.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	o, err := Read(r.Config, r.Args)
	if err != nil {
		return err
	}
	if _, err := call(ctx, o.Socket, &Request{Command: plugin.Status}); err != nil {
		return plugin.Unavailable(err)
	}
	return nil
}

// Stores returns the daemon's leases.
func (Plugin) Stores(r *plugin.Request) []plugin.Store { return []plugin.Store{leases{socketOf(r)}} }

// leases are those of the daemon that listens on a socket.
type leases struct{ socket string }

// Held lists the leases, and the files that can be none of a lease, which are nobody's.
func (l leases) Held(_ context.Context, network string) (list []plugin.Held, err error) {
	files, err := DirOf(l.socket).Read()
	for _, f := range files {
		switch {
		case f.Err == nil:
			list = append(list, plugin.Held{Key: f.Request.Key, What: f.lease(), Own: f})
		case f.isGarbage():
			list = append(list, plugin.Held{Key: plugin.Key{Network: network}, What: "file " + f.Path, Own: f})
		}
	}
	return list, err
}

// Release has the daemon release leases, and removes the other files.
func (l leases) Release(ctx context.Context, list []plugin.Held) error {
	var errs []error
	for _, h := range list {
		f := h.Own.(File)
		switch {
		case f.Err != nil:
			errs = append(errs, state.Remove(f.Path))
		case ctx.Err() == nil:
			errs = append(errs, release(ctx, l.socket, h.Key))
		}
	}
	return errors.Join(append(errs, context.Cause(ctx))...)
}
