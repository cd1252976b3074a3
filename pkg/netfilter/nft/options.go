package nft

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Ports with conditions, or with another bit of the mark, have rules of their own, besides the elements that say whose port it is. They
// are made by the program nft from text, since conditions are in its language; docs/netfilter.md shows them. The comments say whose
// rules they are.

// optionChains are the chains that have such rules.
func optionChains() []string { return []string{chainHostOptions, chainOptions, chainMarks} }

// hasOwnRules reports whether a published port has rules of its own.
func (r record) hasOwnRules() bool {
	return r.kind == kindPort && (r.conditions != 0 || r.bit != defaultBit)
}

func conditionsFor(f *family, ports netfilter.PortMaps) string {
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
	return h.Sum32()
}

// options returns the commands of nft that make the rules which an attachment needs for its ports, a rule each.
func (t *table) options(o owner, wanted netfilter.PortMaps, records []record) (commands []string) {
	for _, p := range t.ports {
		var keys []string
		var r record // all have the same options
		for _, other := range records {
			if other.hasOwnRules() && p.has(other) {
				r, keys = other, append(keys, keyText(other))
			}
		}
		if len(keys) == 0 {
			continue
		}
		mark := fmt.Sprintf("meta mark set meta mark | %#x", uint32(1)<<r.bit)
		match := fmt.Sprintf("meta nfproto ipv%s %s { %s } %s", p.family.digit, p.text, strings.Join(keys, ", "), conditionsFor(p.family, wanted))
		verb := "add"
		add := func(action string) {
			commands = append(commands, fmt.Sprintf("%s rule %s %s %s %s comment %q", verb, t, p.options, match, action, o.comment))
		}
		if r.conditions != 0 {
			// A connection whose port is published by one attachment on conditions, and by another one without, must not get the latter's
			// mark: each rule with conditions goes to the front, so that the last here is the first there.
			verb = "insert"
			add(fmt.Sprintf("dnat %s to %s map @%s", p.family.name, p.text, p.conditional.Name))
		}
		if r.flags&flagSNAT != 0 {
			add(fmt.Sprintf("iifname %q %s", r.link, mark))
		}
		if r.flags&flagSNAT != 0 && p.family == &ipv4 {
			add(`oifname "lo" ip saddr 127.0.0.0/8 ` + mark)
		}
		if r.flags&flagMasqAll != 0 {
			add(mark)
		}
	}
	if len(commands) > 0 && records[0].bit != defaultBit {
		const masquerade = "add rule %s %s meta mark & %#[3]x == %#[3]x masquerade comment %q"
		commands = append(commands, fmt.Sprintf(masquerade, t, chainMarks, uint32(1)<<records[0].bit, o.comment))
	}
	return commands
}

// keyText is the key of a port in the words of nft.
func keyText(r record) string {
	key := fmt.Sprintf("%s . %d", netfilter.ProtocolName(r.proto), r.port)
	if r.isBound() {
		return r.addr.String() + " . " + key
	}
	return key
}

// rulesOf lists the rules that an owner has for its records.
func (t *table) rulesOf(o owner, records []record) (own []*nftables.Rule, err error) {
	if !slices.ContainsFunc(records, record.hasOwnRules) {
		return nil, nil
	}
	for _, name := range optionChains() {
		rules, err := t.conn.GetRules(&t.Table, &nftables.Chain{Name: name})
		if err != nil {
			return nil, explain("list the rules of chain "+name, err)
		}
		own = append(own, slices.DeleteFunc(rules, func(r *nftables.Rule) bool { return CommentIn(r.UserData) != o.comment })...)
	}
	return own, nil
}

// CheckConditions has the program nft say whether conditions are right. It changes nothing, and needs nothing of ours to be there.
func CheckConditions(ctx context.Context, ports netfilter.PortMaps) error {
	for _, f := range families() {
		key, text := "conditionsV"+f.digit, conditionsFor(f, ports)
		if text == "" {
			continue
		}
		const remedy = "they are written as in a rule of nft: see nft(8)"
		if strings.ContainsAny(text, ";#\n\r") {
			return plugin.ConfigError(remedy, "%s: %q has more in it than conditions", key, text)
		}
		const try = "add table inet cnibox-try\nadd chain inet cnibox-try conditions\nadd rule inet cnibox-try conditions meta nfproto ipv%s %s accept\n"
		err := runNFT(ctx, fmt.Sprintf(try, f.digit, text), "--check")
		switch {
		case errors.As(err, new(nftRefusal)):
			return plugin.ConfigError(remedy, "%s: %v", key, err)
		case err != nil:
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// nftRefusal is what the program says when it fails.
type nftRefusal string

func (r nftRefusal) Error() string { return "nft refuses them: " + string(r) }

// runNFT has the program make changes, all of them or none.
func runNFT(ctx context.Context, text string, args ...string) error {
	path, err := exec.LookPath("nft")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/nft") // a runtime may have a short PATH
	}
	if err != nil {
		return types.NewError(types.ErrPluginNotAvailable, "the program nft is not installed, which conditions and markMasqBit need",
			"install nftables, or leave these keys out, or use backend \"iptables\"")
	}
	cmd := exec.CommandContext(ctx, path, append(args, "-f", "-")...)
	cmd.Stdin = strings.NewReader(text)
	// Our lock is released when we are killed, and must not be before the change is made or dropped.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("nft: %w", context.Cause(ctx))
	case cmd.ProcessState == nil: // it was not started
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nftRefusal(strings.Join(strings.Fields(string(out)), " "))
}
