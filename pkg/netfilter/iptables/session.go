package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// lockWait is how long a call waits for others to finish their changes. One
// takes some ten milliseconds, more with thousands of rules.
const lockWait = time.Minute

// tries is how often a change is planned anew because rules have changed
// meanwhile, by programs that do not know our lock.
const tries = 5

// session is a call that may change rules and records: one at a time.
type session struct {
	lock   *state.Lock
	probes *probes
}

func begin(ctx context.Context) (*session, error) {
	for _, dir := range []string{recordsDir, portsDir, addrsDir, bridgesDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	lock, err := state.Acquire(ctx, lockFile, 0o600, lockWait)
	if err != nil {
		return nil, err
	}
	probes, err := openProbes()
	if err != nil {
		lock.Release()
		return nil, err
	}
	return &session{lock: lock, probes: probes}, nil
}

func (s *session) end() {
	s.probes.close()
	s.lock.Release()
}

// list reads a table of one flavour.
func list(ctx context.Context, f family, fl flavour, table string) (listing, error) {
	p, err := flavouredProgram(f, fl, "save")
	if err != nil {
		return listing{}, err
	}
	text, err := p.save(ctx, table)
	if err != nil {
		return listing{}, explain(err)
	}
	if strings.Contains(text, incompatible) {
		return listing{}, plugin.Errorf(fmt.Sprintf("remove those rules: see `nft list table %s %s`", nftFamily(f), table), "%s can't list table %s: it has rules of nft that iptables does not understand", p.name(), table)
	}
	return parseListing(f, text), nil
}

// incompatible is what iptables-nft-save says of a table in place of its rules.
const incompatible = "is incompatible, use 'nft' tool"

func nftFamily(f family) string {
	if f == ipv4 {
		return "ip"
	}
	return "ip6"
}

// replan makes changes that are planned from what the table has, again when
// that has changed before they could be made.
func (s *session) replan(ctx context.Context, p program, f family, table string, plan func(listing) ([]string, error)) error {
	var last error
	for range tries {
		l, err := list(ctx, f, p.flavour, table)
		if err != nil {
			return err
		}
		lines, err := plan(l)
		if err != nil || len(lines) == 0 {
			return err
		}
		if last = p.restore(ctx, table, lines); last == nil || !worthAnother(last) {
			break
		}
	}
	s.probes.forget()
	return explain(last)
}

// worthAnother tells whether another plan may succeed where one has failed.
func worthAnother(err error) bool {
	var r *refusal
	return errors.As(err, &r) && !r.locked()
}

// view is what the kernel tells of one table of one flavour, remembered.
type view struct {
	probe  probe
	family family
	table  string
	chains map[string]bool
}

func (s *session) view(f family, fl flavour, table string) *view { return s.probes.view(f, fl, table) }

func (p *probes) view(f family, fl flavour, table string) *view {
	return &view{probe: p.of(fl), family: f, table: table, chains: map[string]bool{}}
}

func (v *view) has(chain string) (bool, error) {
	if known, ok := v.chains[chain]; ok {
		return known, nil
	}
	there, err := v.probe.hasChain(v.family, v.table, chain)
	v.chains[chain] = there
	return there, err
}

// may tells whether a rule can be there: not if its chain is not, or the chain
// that it jumps to, or if no rule of the chain has its address.
func (v *view) may(r rule) (bool, error) {
	for _, chain := range []string{r.chain, r.target()} {
		if !ourName(chain) {
			continue
		}
		if there, err := v.has(chain); err != nil || !there {
			return false, err
		}
	}
	if r.addr.IsValid() {
		return v.probe.mentions(v.family, v.table, r.chain, r.addr)
	}
	return true, nil
}

// ourName tells whether a chain is one that CNI plugins make.
func ourName(chain string) bool { return len(chain) > len("CNI-") && chain[:len("CNI-")] == "CNI-" }
