package lease

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// DefaultDir is where networks keep their leases unless they say otherwise.
const DefaultDir = "/var/lib/cni/networks"

// lockWait bounds the wait for a network's lock. Its holders need well under a
// millisecond each, those of the reference plugin about 12 us for each lease of
// the network.
const lockWait = 45 * time.Second

// Store is the leases of one network.
type Store struct {
	network string
	path    string // the directory of the leases
	index   string // the file of the index
}

// NewStore returns the store of a network below dataDir, an absolute path. It
// touches nothing.
func NewStore(dataDir, network string) (*Store, error) {
	if !filepath.IsAbs(dataDir) {
		return nil, fmt.Errorf("the directory of the leases, %q, is not an absolute path", dataDir)
	}
	if network == "" || network[0] == '.' || strings.ContainsAny(network, "/\x00") {
		return nil, fmt.Errorf("%q can't be the name of a network", network)
	}
	return &Store{
		network: network,
		path:    filepath.Join(dataDir, network),
		index:   filepath.Join(dataDir, ".cnibox", network),
	}, nil
}

// Path returns the directory of the leases.
func (s *Store) Path() string { return s.path }

// Allocate takes one address of each pool for owner, all or none. The error is
// a *HeldError when owner has an address of a pool already, a *TakenError when
// a wanted address is another's, a *FullError when a pool has none left.
func (s *Store) Allocate(ctx context.Context, owner plugin.Attachment, pools []Pool) ([]Lease, error) {
	if owner.ContainerID == "" || owner.IfName == "" {
		return nil, fmt.Errorf("a lease needs a container and an interface, got %q and %q", owner.ContainerID, owner.IfName)
	}
	x, err := s.begin(ctx, true)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(s.path, 0o755); err != nil {
			return nil, err
		}
		x, err = s.begin(ctx, true)
	}
	if err != nil {
		return nil, err
	}
	defer x.end()
	return x.allocate(owner, pools)
}

// Release gives back all that owner holds, and only that: leases in the old
// form, which name no interface, only if there is none in the new. It returns
// the addresses given back. Holding nothing, or there being no store, is no
// error, and nothing is made then.
func (s *Store) Release(ctx context.Context, owner plugin.Attachment) ([]Lease, error) {
	x, err := s.begin(ctx, false)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer x.end()
	leases, err := x.heldBy(owner)
	if err != nil {
		return nil, err
	}
	return leases, x.removeAll(leases)
}

// Collect removes each lease that keep does not want, and what is torn. Files
// that are no leases are left alone.
func (s *Store) Collect(ctx context.Context, keep func(owner plugin.Attachment) bool) ([]Lease, error) {
	x, err := s.begin(ctx, false)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer x.end()
	leases, err := x.rebuild() // reads every file: the truth, not the index
	if err != nil {
		return nil, err
	}
	stale := slices.DeleteFunc(leases, func(l Lease) bool { return keep(l.Owner) })
	return stale, x.removeAll(stale)
}

// HeldBy returns what owner holds, as Release would find it. It changes
// nothing.
func (s *Store) HeldBy(ctx context.Context, owner plugin.Attachment) ([]Lease, error) {
	x, err := s.begin(ctx, false)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer x.end()
	x.readOnly = true
	return x.heldBy(owner)
}

// OwnerOf returns who holds the address. It takes no lock: a lease that its
// owner got is there until its owner or GC removes it.
func (s *Store) OwnerOf(a netip.Addr) (owner plugin.Attachment, ok bool, err error) {
	d, err := openDirectory(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return owner, false, nil
	}
	if err != nil {
		return owner, false, err
	}
	defer d.close()
	owner, is, err := d.read(a)
	return owner, is == held, err
}

// Leases returns all leases of the network, in no order. It takes no lock.
func (s *Store) Leases() ([]Lease, error) {
	d, err := openDirectory(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.close()
	leases, _, err := d.scan()
	return leases, err
}

// Writable tells whether a lease could be written now, by writing one without a
// name. Where the filesystem has no such files it is a file of another name that
// is removed again, and outside of the leases' directory, to leave the index
// trusted.
func (s *Store) Writable() error {
	dir, err := existing(s.path)
	if err != nil {
		return err
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		f := os.NewFile(uintptr(fd), "a file without a name in "+dir)
		return probe(f)
	}
	if err != unix.EOPNOTSUPP && err != unix.EISDIR {
		return &os.PathError{Op: "write to", Path: dir, Err: err}
	}
	if dir == s.path {
		dir = filepath.Dir(dir)
	}
	f, err := os.CreateTemp(dir, ".cnibox-probe-*")
	if err != nil {
		return err
	}
	return errors.Join(probe(f), os.Remove(f.Name()))
}

// existing returns path or the nearest directory above that exists: Allocate
// makes the rest.
func existing(path string) (string, error) {
	for {
		_, err := os.Stat(path)
		if !errors.Is(err, os.ErrNotExist) {
			return path, err
		}
		path = filepath.Dir(path)
	}
}

func probe(f *os.File) error {
	_, err := f.Write(format(plugin.Attachment{ContainerID: "probe", IfName: "probe"}))
	return errors.Join(err, f.Close())
}
