package doctor

import (
	"errors"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// ruleset is what the checks need of the packet filter. It is read over netlink, and of iptables-legacy by its program.
type ruleset struct {
	drops     []forwardChain
	kubeProxy bool // rules of Kubernetes' Services are there
}

// forwardChain is a base chain at hook forward that drops what no rule accepts.
type forwardChain struct {
	program string // of iptables' chain FORWARD: how its program is called, with %s for iptables or ip6tables
	table   nftables.Table
	name    string
	v4, v6  bool
	chains  []string // of its table
	accepts []acceptance
	jumps   [][2]string // from a chain to another, by rules that ask for nothing
}

// passes returns the chains that each packet passes, unless a rule before has accepted or dropped it.
func (c forwardChain) passes() []string {
	chains := []string{c.name}
	for i := 0; i < len(chains); i++ {
		for _, j := range c.jumps {
			if j[0] == chains[i] && !slices.Contains(chains, j[1]) {
				chains = append(chains, j[1])
			}
		}
	}
	return chains
}

func readRuleset() (ruleset, error) {
	r := ruleset{}
	err := errors.Join(r.readNFT(), r.readLegacy())
	return r, err
}

// readNFT reads nf_tables, which iptables-nft uses too. A kernel without it has nothing there.
func (r *ruleset) readNFT() error {
	conn, err := nftables.New(nftables.AsLasting())
	if err == nil {
		err = errors.Join(r.readChains(conn), conn.CloseLasting())
	}
	for _, lacking := range []error{unix.EINVAL, unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT} {
		if errors.Is(err, lacking) {
			return nil
		}
	}
	return err
}

func (r *ruleset) readChains(conn *nftables.Conn) error {
	chains, err := conn.ListChains()
	for _, c := range chains {
		if c.Name == "KUBE-SERVICES" || c.Table.Name == "kube-proxy" {
			r.kubeProxy = true
		}
		drops := c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
		if !drops || c.Table.Family == nftables.TableFamilyBridge || c.Table.Name == "firewalld" {
			continue
		}
		f := forwardChain{table: *c.Table, name: c.Name, v4: c.Table.Family != nftables.TableFamilyIPv6, v6: c.Table.Family != nftables.TableFamilyIPv4}
		if c.Name == "FORWARD" && c.Table.Name == "filter" && c.Table.Family != nftables.TableFamilyINet {
			f.program = "%s"
		}
		for _, other := range chains {
			if other.Table.Family != c.Table.Family || other.Table.Name != c.Table.Name {
				continue
			}
			f.chains = append(f.chains, other.Name)
			if other.Hooknum == nil || other.Name == c.Name {
				err = errors.Join(err, f.readRules(conn, other))
			}
		}
		r.drops = append(r.drops, f)
	}
	return err
}

func (f *forwardChain) readRules(conn *nftables.Conn, c *nftables.Chain) error {
	rules, err := conn.GetRules(c.Table, c)
	for _, rule := range rules {
		for _, e := range rule.Exprs {
			if v, is := e.(*expr.Verdict); is {
				a, wrong := acceptanceOf(conn, rule)
				err = errors.Join(err, wrong)
				f.add(a, v.Kind == expr.VerdictAccept, v.Chain)
			}
		}
	}
	return err
}

// add notes a rule that accepts, or that jumps to another chain.
func (f *forwardChain) add(a acceptance, accepts bool, target string) {
	switch {
	case accepts:
		f.accepts = append(f.accepts, a)
	case target != "" && a.isForAll():
		f.jumps = append(f.jumps, [2]string{a.chain, target})
	}
}
