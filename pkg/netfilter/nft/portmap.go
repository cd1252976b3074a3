package nft

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/results"
)

// PortMaps publishes ports of a container on the host. Add fails if another attachment has one of the ports, with an error that names
// it, or takes the port over if that one is gone.
func (c *Conn) PortMaps(ports spec.PortMaps) Use {
	t := c.host()
	t.results = ports.Results
	records := portRecords(ports)
	link, _ := localhostLink(records)
	return Use{
		table: t, name: usePortMap, kinds: []kind{kindPort}, records: records,
		before: func(ctx context.Context) error { return tryConditions(ctx, ports) },
		after: func(ctx context.Context, o owner) error {
			if options := t.options(o, ports, records); len(options) > 0 {
				if err := runNFT(ctx, strings.Join(options, "\n")+"\n"); err != nil {
					return fmt.Errorf("publish ports on conditions: %w", err)
				}
			}
			if link == "" {
				return nil
			}
			return spec.AllowLocalhost(link) // the guard is there by now
		},
		also: func(o owner) error {
			options := t.options(o, ports, records)
			rules, err := t.rulesOf(map[owner][]record{o: records})
			switch {
			case err != nil:
				return err
			case len(rules) < len(options):
				return t.mismatch(": %s has %d of its own %d rules in chains %s", o.comment, len(rules), len(options), strings.Join(optionChains(), ", "))
			case link != "":
				return spec.CheckLocalhost(link)
			}
			return nil
		},
	}
}

const usePortMap = "portmap"

// portRecords returns what an attachment is to have for its ports.
func portRecords(ports spec.PortMaps) (records []record) {
	r := record{kind: kindPort, bit: defaultBit, link: noLink}
	if ports.MasqAll {
		r.flags |= flagMasqAll
	}
	if link := ports.SNATLink(); link != "" {
		r.flags |= flagSNAT
		r.link = link
		if !ports.InsideShared {
			r.flags |= flagOwnLink
		}
	}
	if r.flags&(flagSNAT|flagMasqAll) != 0 {
		r.bit = uint8(ports.MarkBit)
	}
	for _, m := range ports.Maps {
		f := familyOf(m.Container.Addr())
		r.conditions = hashOf(conditionsFor(f, ports))
		r.addr, r.proto, r.port, r.target = m.HostIP, m.Protocol, m.HostPort, m.Container
		if !r.addr.IsValid() {
			r.addr = netip.PrefixFrom(m.Container.Addr(), 0).Masked().Addr() // the unspecified one of the family
		}
		records = append(records, r)
	}
	return records
}

// parseTarget reads the data of maps of ports: where a connection goes.
func parseTarget(data []byte) netip.AddrPort {
	if len(data) < 4 {
		return netip.AddrPort{}
	}
	host, port := data[:len(data)-4], data[len(data)-4:] // which is filled up to a register
	addr, _ := netip.AddrFromSlice(host)
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(port))
}

// localhostLink returns the link by which ports on 127.0.0.1 lead to the container, "" if there is none, and whether nobody else is
// behind it. All ports of an attachment have the same link.
func localhostLink(records []record) (link string, own bool) {
	for _, r := range records {
		if r.kind == kindPort && r.flags&flagSNAT != 0 && r.addr.Is4() {
			return r.link, r.flags&flagOwnLink != 0
		}
	}
	return "", false
}

// releaseGone releases what an owner of published ports has that is gone: a node that crashed never sent its DEL. The error is that the
// port is taken, by an owner that is not known to be gone.
func (t *table) releaseGone(comment, port string) (removed []element, err error) {
	known := "its whole name, and so whether it runs, can't be told from the table"
	if key, ok := keyIn(comment); ok {
		var gone bool
		if gone, known = results.KnownGone(t.results, key); gone {
			return t.release(ownerOf(key, usePortMap))
		}
	}
	return nil, plugin.Errorf(fmt.Sprintf("%s; publish another port of the host, or stop that container (network/container/interface); "+
		"if it is gone, the network's GC frees the port", known),
		"host port %s is already published by %s", port, cmp.Or(comment, "something that left no name"))
}

// Ports with conditions, or with another bit of the mark, have rules of their own, besides the elements that say whose port it is. They
// are made by the program nft from text, since conditions are in its language; docs/netfilter.md shows them. The comments say whose
// rules they are.

// optionChains are the chains that have such rules.
func optionChains() []string { return []string{chainHostOptions, chainOptions, chainMarks} }

// hasOwnRules reports whether a published port has rules of its own.
func (r record) hasOwnRules() bool {
	return r.kind == kindPort && (r.conditions != 0 || r.bit != defaultBit)
}

func conditionsFor(f *family, ports spec.PortMaps) string {
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

// options returns the commands of nft that make the rules which an attachment needs for its ports, a rule each.
func (t *table) options(o owner, wanted spec.PortMaps, records []record) (commands []string) {
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
	key := fmt.Sprintf("%s . %d", spec.ProtocolName(r.proto), r.port)
	if r.isBound() {
		return r.addr.String() + " . " + key
	}
	return key
}

// rulesOf lists the rules that owners have for their records.
func (t *table) rulesOf(holdings map[owner][]record) (own []*nftables.Rule, err error) {
	comments := map[string]bool{}
	for o, records := range holdings {
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
			return nil, explain("list the rules of chain "+name, err)
		}
		own = append(own, slices.DeleteFunc(rules, func(r *nftables.Rule) bool { return !comments[CommentIn(r.UserData)] })...)
	}
	return own, nil
}

// CheckConditions refuses conditions that are more than that, as far as it can be told without the program nft, which has to be there.
func CheckConditions(ports spec.PortMaps) error {
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
func tryConditions(ctx context.Context, ports spec.PortMaps) error {
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
	if path, err = spec.FindProgram("nft"); err != nil {
		return "", types.NewError(types.ErrPluginNotAvailable, "the program nft is not installed, which conditions and markMasqBit need",
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
	_, err = spec.RunProgram(ctx, path, text, append(args, "-f", "-")...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nftRefusal(strings.Join(strings.Fields(string(exit.Stderr)), " "))
	}
	return err
}
