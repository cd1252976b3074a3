package nft

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os/exec"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/program"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Ports with conditions have rules of their own, besides the elements that say whose port it is. They are made by the program nft from
// text, since conditions are in its language; docs/operate/netfilter.md shows them. The comments say whose rules they are.

// optionChains are the chains that have such rules.
func optionChains() []string { return []string{chainHostOptions, chainOptions} }

func conditionsFor(f *family, ports spec.PortNeeds) string {
	if f == &ipv4 {
		return strings.Join(ports.Conditions4, " ")
	}
	return strings.Join(ports.Conditions6, " ")
}

// hashOf is a hash of conditions, 0 if there are none.
func hashOf(conditions string) uint32 {
	if conditions == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(conditions)) // can't fail
	return max(h.Sum32(), 1)
}

// conditionRules returns the commands of nft that make the rules which an attachment needs for its ports, a rule each. A connection whose
// port is published by one attachment on conditions, and by another one without, must not get the latter's mark: each rule goes to the
// front of its chain, so that the last here is the first there.
func (t *table) conditionRules(o owner, w Wants) (commands []string) {
	host, _ := t.layout.(hostLayout) // no other has ports
	for _, p := range host.ports {
		var keys []string
		var r record // all have the same options
		for _, other := range w.records {
			if other.conditions != 0 && p.has(other) {
				r, keys = other, append(keys, other.nftKey())
			}
		}
		if len(keys) == 0 {
			continue
		}
		mark := fmt.Sprintf("meta mark set meta mark | %#x", 1<<defaultBit)
		actions := []string{fmt.Sprintf("dnat %s to %s map @%s", p.family.name, p.text, p.conditional.Name)}
		if r.flags&flagSNAT != 0 {
			actions = append(actions, fmt.Sprintf("iifname %q %s", r.link, mark))
		}
		if r.flags&flagSNAT != 0 && p.family == &ipv4 {
			actions = append(actions, `oifname "lo" ip saddr 127.0.0.0/8 `+mark)
		}
		if r.flags&flagMasqAll != 0 {
			actions = append(actions, mark)
		}
		for _, action := range actions {
			commands = append(commands, fmt.Sprintf("insert rule %s %s meta nfproto ipv%s %s { %s } %s %s comment %q", t, p.options,
				p.family.digit, p.text, strings.Join(keys, ", "), conditionsFor(p.family, w.ports), action, o.comment))
		}
	}
	return commands
}

// repairRules makes the rules that an attachment has for itself again, unless all are there.
func (t *table) repairRules(ctx context.Context, o owner, w Wants) error {
	if t.checkRules(o, w) == nil {
		return nil
	}
	left, err := t.rulesOf(map[owner][]record{o: w.records})
	if err == nil && len(left) > 0 {
		t.conn.DeleteRules(left)
		err = t.commit()
	}
	if err != nil {
		return err
	}
	return t.addRules(ctx, o, w)
}

// addRules makes the rules that an attachment has for itself.
func (t *table) addRules(ctx context.Context, o owner, w Wants) error {
	commands := t.conditionRules(o, w)
	if len(commands) == 0 {
		return nil
	}
	if err := runNFT(ctx, strings.Join(commands, "\n")+"\n"); err != nil {
		return fmt.Errorf("publish ports on conditions: %w", err)
	}
	return nil
}

// checkRules makes sure that they are there.
func (t *table) checkRules(o owner, w Wants) error {
	wanted := len(t.conditionRules(o, w))
	rules, err := t.rulesOf(map[owner][]record{o: w.records})
	if err == nil && len(rules) < wanted {
		err = t.mismatch(": %s has %d of its own %d rules in chains %s", o.comment, len(rules), wanted, strings.Join(optionChains(), ", "))
	}
	return err
}

// nftKey is the key of a port in the words of nft.
func (r record) nftKey() string {
	key := fmt.Sprintf("%s . %d", spec.ProtocolName(r.proto), r.port)
	if r.isBound() {
		return r.addr.String() + " . " + key
	}
	return key
}

// rulesOf lists the rules that owners have for their records.
func (t *table) rulesOf(owners map[owner][]record) (own []*nftables.Rule, err error) {
	comments := map[string]bool{}
	for o, records := range owners {
		if slices.ContainsFunc(records, record.hasOwnRules) {
			comments[o.comment] = true
		}
	}
	if len(comments) == 0 {
		return nil, nil
	}
	for _, name := range optionChains() {
		rules, err := t.conn.GetRules(&t.Table, &nftables.Chain{Name: name})
		if err != nil {
			return nil, kernelError("list the rules of chain "+name, err)
		}
		own = append(own, slices.DeleteFunc(rules, func(r *nftables.Rule) bool { return !comments[CommentIn(r.UserData)] })...)
	}
	return own, nil
}

// CheckConditions refuses conditions that are more than that, as far as it can be told without the program nft, which has to be there.
func CheckConditions(ports spec.PortNeeds) error {
	for _, f := range families() {
		text := conditionsFor(f, ports)
		if text == "" {
			continue
		}
		isMore := func(c rune) bool { return c < ' ' || c == 0x7f || c == ';' || c == '#' }
		if strings.ContainsFunc(text, isMore) {
			return plugin.ConfigError(conditionsRemedy, "conditionsV%s: %q has more in it than conditions", f.digit, text)
		}
		if _, err := findNFT(); err != nil {
			return err
		}
	}
	return nil
}

const conditionsRemedy = "they are written as in a rule of nft: see nft(8)"

// tryConditions has the program nft say whether conditions are right. It changes nothing, and needs nothing of ours to be there.
func tryConditions(ctx context.Context, ports spec.PortNeeds) error {
	if err := CheckConditions(ports); err != nil {
		return err
	}
	for _, f := range families() {
		text := conditionsFor(f, ports)
		if text == "" {
			continue
		}
		const try = "add table inet cnibox-try\nadd chain inet cnibox-try conditions\nadd rule inet cnibox-try conditions meta nfproto ipv%s %s accept\n"
		err := runNFT(ctx, fmt.Sprintf(try, f.digit, text), "--check")
		switch {
		case errors.As(err, new(nftRefusal)):
			var lacks nftRefusal
			if errors.As(runNFT(ctx, "add table inet cnibox-try\n", "--check"), &lacks) {
				m := hostLayout{}.missing()
				m.Err = errors.New(string(lacks))
				return m
			}
			return plugin.ConfigError(conditionsRemedy, "conditionsV%s: %v", f.digit, err)
		case err != nil:
			return fmt.Errorf("conditionsV%s: %w", f.digit, err)
		}
	}
	return nil
}

// nftRefusal is what the program says when it fails.
type nftRefusal string

func (r nftRefusal) Error() string { return "nft refuses them: " + string(r) }

func findNFT() (path string, err error) {
	if path, err = program.Find("nft"); err != nil {
		return "", types.NewError(types.ErrPluginNotAvailable, "the program nft is not installed, which conditions in its words need",
			"install nftables, or leave these keys out, or use backend \"iptables\"")
	}
	return path, nil
}

// runNFT has the program make changes, all of them or none.
func runNFT(ctx context.Context, text string, args ...string) error {
	path, err := findNFT()
	if err != nil {
		return err
	}
	_, err = program.Run(ctx, path, text, append(args, "-f", "-")...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nftRefusal(strings.Join(strings.Fields(string(exit.Stderr)), " "))
	}
	return err
}
