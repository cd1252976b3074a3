package lease

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Dir is a directory in which networks keep their leases. It is a plugin.Store.
type Dir string

// Held lists the leases. A torn file is nobody's.
func (d Dir) Held(_ context.Context, network string) (list []plugin.Held, err error) {
	networks := []string{network}
	if network == "" {
		if networks, err = d.networks(); err != nil {
			return nil, err
		}
	}
	for _, network := range networks {
		s, err := NewStore(string(d), network, "")
		if err != nil {
			return nil, nil // host-local refuses it, too
		}
		leases, err := s.scan()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return list, s.failed("list leases", err)
		}
		for _, l := range leases {
			key := l.Owner
			key.Network = network // nobody's, if the file is torn
			list = append(list, plugin.Held{Key: key, What: "address " + l.Address.String(), Since: s.Since(l), Own: l})
		}
	}
	return list, nil
}

func (d Dir) networks() (names []string, err error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Release gives leases back.
func (d Dir) Release(ctx context.Context, list []plugin.Held) error {
	byNetwork := map[string][]Lease{}
	for _, h := range list {
		byNetwork[h.Key.Network] = append(byNetwork[h.Key.Network], h.Own.(Lease))
	}
	var errs []error
	for network, leases := range byNetwork {
		s, err := NewStore(string(d), network, "")
		if err == nil {
			_, err = s.locked(ctx, false, "give back addresses of network "+network, func(x *session) ([]Lease, error) { return nil, x.removeSame(leases) })
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeSame removes the leases that are still as they were listed.
func (x *session) removeSame(leases []Lease) error {
	var same []Lease
	var errs []error
	for _, l := range leases {
		owner, is, err := x.read(l.Address)
		if err == nil && owner == l.Owner && (is == leased || is == torn) {
			same = append(same, l)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, x.removeAll(same))...)
}
