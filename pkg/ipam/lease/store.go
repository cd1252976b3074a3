package lease

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// DefaultDir is where networks keep their leases unless they say otherwise.
const DefaultDir = "/var/lib/cni/networks"

// lockWait bounds the wait for a network's lock. The reference plugin holds it while it reads all leases of the network.
const lockWait = 45 * time.Second

// Store is the leases of one network.
type Store struct {
	Netns string // of an ADD: the path of the container's network namespace

	network   string
	path      string // the directory of the leases
	indexPath string
	results   string // libcni's of each attachment
}

// NewStore returns the store of a network below dataDir, an absolute path. It
// touches nothing. results is the directory of libcni's results.
func NewStore(dataDir, network, results string) (*Store, error) {
	if !filepath.IsAbs(dataDir) {
		return nil, fmt.Errorf("the directory of the leases, %q, is not an absolute path", dataDir)
	}
	if network == "" || network[0] == '.' || strings.ContainsAny(network, "/\x00") {
		return nil, fmt.Errorf("%q can't be the name of a network", network)
	}
	return &Store{
		network:   network,
		path:      filepath.Join(dataDir, network),
		indexPath: filepath.Join(dataDir, ".cnibox", network),
		results:   results,
	}, nil
}

// Path returns the directory of the leases.
func (s *Store) Path() string { return s.path }

// Allocate takes one address of each pool for owner, all or none.
func (s *Store) Allocate(ctx context.Context, owner plugin.Key, pools []ranges.Pool) ([]Lease, error) {
	if owner.ContainerID == "" || owner.IfName == "" {
		return nil, fmt.Errorf("a lease needs a container and an interface, got %q and %q", owner.ContainerID, owner.IfName)
	}
	if n := len(format(owner)); n > maxContent {
		return nil, plugin.ConfigError("use a shorter container id", "a lease of this container would take %d bytes, and has %d at most", n, maxContent)
	}
	return s.locked(ctx, true, "take an address", func(x *session) ([]Lease, error) { return x.allocate(owner, pools) })
}

// Restore takes addresses again whose files are lost, unless somebody else has one by now.
func (s *Store) Restore(ctx context.Context, owner plugin.Key, addresses []netip.Addr) error {
	if len(addresses) == 0 {
		return nil
	}
	_, err := s.locked(ctx, true, "take addresses again", func(x *session) ([]Lease, error) {
		var errs []error
		for _, a := range addresses {
			errs = append(errs, x.restore(Lease{Address: a, Owner: owner}))
		}
		return nil, errors.Join(errs...)
	})
	return err
}

// Release gives back all that owner holds, and only that: leases in the old form, which name no interface, only if there is none in the
// new. It returns the addresses given back. Holding nothing, or there being no store, is no error, and nothing is made then.
func (s *Store) Release(ctx context.Context, owner plugin.Key) ([]Lease, error) {
	return s.locked(ctx, false, "give back the addresses of "+Name(owner), func(x *session) ([]Lease, error) {
		leases, err := x.heldBy(owner)
		if err != nil {
			return nil, err
		}
		return leases, x.removeAll(leases)
	})
}

// HeldBy returns what owner holds, as Release would find it. It changes nothing.
func (s *Store) HeldBy(ctx context.Context, owner plugin.Key) ([]Lease, error) {
	return s.locked(ctx, false, "look up the addresses of "+Name(owner), func(x *session) ([]Lease, error) {
		x.readOnly = true
		return x.heldBy(owner)
	})
}

// OwnerOf returns who holds the address. It takes no lock: a lease that its owner got is there until its owner or GC removes it.
func (s *Store) OwnerOf(a netip.Addr) (owner plugin.Key, ok bool, err error) {
	owner, is, err := s.read(a)
	return owner, is == leased, s.failed("look up "+a.String(), err)
}

// Since returns when a lease was made, the zero Time if that can't be told.
func (s *Store) Since(l Lease) (made time.Time) {
	if st, err := os.Lstat(s.file(l.Address)); err == nil {
		made = st.ModTime()
	}
	return made
}

// Writable returns an error when no lease could be written now.
func (s *Store) Writable() error { return state.Writable(s.path) }
