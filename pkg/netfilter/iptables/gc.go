package iptables

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// collect removes what attachments of a network have for a use and are not
// valid: those in records, and those whose rules name the network.
func collect(ctx context.Context, u use, network string, valid []plugin.Key) error {
	records, err := recordsOf(u, network)
	if err != nil {
		return err
	}
	stale := staleOf(u, records, valid)
	known := chainsInUse(u, network, records, valid)
	unknown, err := unknownChains(u, known)
	if err != nil || len(stale) == 0 && !unknown {
		return err
	}
	s, err := begin(ctx)
	if err != nil {
		return err
	}
	defer s.end()
	var errs []error
	for _, a := range stale {
		r, err := loadRecord(a)
		if err == nil && r.of(a.key.IfName) != nil {
			_, err = s.remove(ctx, a, r, nil)
		}
		errs = append(errs, err)
	}
	if unknown {
		errs = append(errs, s.collectChains(ctx, u, network, known))
	}
	return errors.Join(errs...)
}

// recordsOf reads the records that a network has for a use.
func recordsOf(u use, network string) ([]*record, error) {
	files, err := os.ReadDir(recordsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []*record
	for _, file := range files {
		if !strings.HasPrefix(file.Name(), u.name+"-") {
			continue
		}
		r, err := readRecord(file.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed just now
		case err != nil:
			return nil, err
		case r.network == network:
			list = append(list, r)
		}
	}
	return list, nil
}

// staleOf returns the attachments in records that are not valid.
func staleOf(u use, records []*record, valid []plugin.Key) []attachment {
	var list []attachment
	for _, r := range records {
		for _, s := range r.sections {
			if key := r.key(s.ifName); !slices.Contains(valid, key) {
				list = append(list, attachment{u, key})
			}
		}
	}
	return list
}

// chainsInUse returns the chains of valid containers, and of those in records.
func chainsInUse(u use, network string, records []*record, valid []plugin.Key) map[string]bool {
	set := map[string]bool{}
	mark := func(container string) {
		for _, chain := range (attachment{u, plugin.Key{Network: network, ContainerID: container}}).chains() {
			set[chain] = true
		}
	}
	for _, key := range valid {
		mark(key.ContainerID)
	}
	for _, r := range records {
		mark(r.container)
	}
	return set
}

// unknownChains tells whether there are containers' chains that are not known.
func unknownChains(u use, known map[string]bool) (bool, error) {
	if u.prefix == "" {
		return false, nil
	}
	p, err := openProbes()
	if err != nil {
		return false, err
	}
	defer p.close()
	for _, f := range families() {
		for _, fl := range flavours() {
			names, err := p.of(fl).chains(f, u.table)
			if err != nil || slices.ContainsFunc(names, func(name string) bool { return u.owns(name) && !known[name] }) {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// owns tells whether a chain is a container's for the use.
func (u use) owns(chain string) bool {
	return isChain(u.prefix, chain) || u.old != "" && isChain(u.old, chain)
}

// collectChains removes the chains that are not known and whose rules name the
// network.
func (s *session) collectChains(ctx context.Context, u use, network string, known map[string]bool) error {
	var errs []error
	for _, f := range families() {
		for _, fl := range flavours() {
			names, err := s.probes.of(fl).chains(f, u.table)
			if err == nil && slices.ContainsFunc(names, func(name string) bool { return u.owns(name) && !known[name] }) {
				err = s.collectFlavour(ctx, f, fl, u, network, known)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *session) collectFlavour(ctx context.Context, f family, fl flavour, u use, network string, known map[string]bool) error {
	l, err := list(ctx, f, fl, u.table)
	if err != nil {
		return err
	}
	var rm removal
	for _, r := range l.rules {
		for _, chain := range []string{r.chain, r.target()} {
			if u.owns(chain) && !known[chain] && namesNetwork(r, network) && !slices.Contains(rm.chains, chain) {
				rm.chains = append(rm.chains, chain)
			}
		}
	}
	_, err = s.take(ctx, f, fl, u.table, rm)
	return err
}

// namesNetwork tells whether a rule's comment says that it is a network's.
func namesNetwork(r rule, network string) bool {
	w, _ := words(r.spec)
	comment := option(w, "--comment")
	for _, kind := range []string{"", "dnat ", "snat "} {
		if strings.HasPrefix(comment, kind+masqueradeComment(network)+"id: ") {
			return true
		}
	}
	return false
}
