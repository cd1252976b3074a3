package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/netfilter/reach"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Names on a list open what they lead to. For each kind of ports that names open the list has a set of addresses, which the agent's resolver fills before it
// answers. Questions are sent to it, whichever server they are for: so it knows all of them, and nobody else is asked.

// nameSet begins the name of a list's set of addresses to which its i-th named ports are open.
func nameSet(i int, f *family) string { return fmt.Sprintf("names%d_%s", i, f.digit) }

// byName is the bit in the label of a connection that was begun while a name had its destination open: it goes on when that is over.
const byName = 78

// mostNamed is how many addresses a set has at most: whose names are on a list can lead to any number.
const mostNamed = 1 << 16

// questions are the rules that send questions for names to the resolver.
func (l judgeLayout) questions() (rules []rule) {
	for _, f := range families() {
		for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			rules = append(rules, sequence(f.only(), isPort(protocol, names.Port), inSet(l.resolvers[f], f.src()), f.dnat()))
		}
	}
	return rules
}

// isPort goes on if a packet is for a port of a protocol.
func isPort(number uint8, port uint16) rule {
	return sequence(equals(protocol(), []byte{number}), equals(portValue(), []byte{byte(port >> 8), byte(port)}))
}

// toResolver are the rules that let questions pass.
func toResolver() (rules []rule) {
	for _, protocol := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		rules = append(rules, sequence(isPort(protocol, names.ListPort), isLocal(), leave()))
	}
	return rules
}

// addNames adds the sets of what names lead to, and the rules that let it pass.
func (l *list) addNames(lists reach.Lists, refuse func(f *family, when ...rule)) {
	for word, entries := range map[string][]reach.Entry{"allow": lists.Allow, "deny": lists.Deny} {
		for _, e := range entries {
			if e.Name != "" {
				l.names = append(l.names, fmt.Sprint(word, " ", e, " ", e.Prefix))
			}
		}
	}
	slices.Sort(l.names)
	l.names = slices.Compact(l.names)
	ports := lists.NamedPorts()
	if len(ports) == 0 {
		return
	}
	for _, f := range families() {
		refuse(f, isLocal()) // also an address that the node has got since
	}
	l.rules = append(l.rules, sequence(isDirection(original), isEstablished(), hasLabel(byName), leave()))
	for i, p := range ports {
		for _, f := range families() {
			s := &nftables.Set{Name: nameSet(i, f), KeyType: f.addr, HasTimeout: true, Size: mostNamed}
			l.sets = append(l.sets, filled{s, nil})
			for _, ports := range portsRules(p) {
				l.rules = append(l.rules, sequence(f.only(), inSet(s, f.dst()), ports, setLabel(byName), leave()))
			}
		}
	}
}

// portsRules go on if a packet is for one of some ports, a rule for each protocol.
func portsRules(p reach.Ports) (rules []rule) {
	if p.Protocols == 0 {
		return []rule{nil}
	}
	first, last := []byte{byte(p.First >> 8), byte(p.First)}, []byte{byte(p.Last >> 8), byte(p.Last)}
	for _, number := range p.Protocols.Numbers() {
		isPort := append(load(portValue()), &expr.Range{Op: expr.CmpOpEq, Register: register(0), FromData: first, ToData: last})
		rules = append(rules, sequence(equals(protocol(), []byte{number}), isPort))
	}
	return rules
}

// List returns what the list is called by which it is judged what an attachment sends.
func (w Wants) List() string {
	return listsOf(w.records)[0]
}

// Opening is an address to which a name on a list leads.
type Opening struct {
	List  string
	Ports int // the number of the ports that it opens, of those that names of the list open
	Addr  netip.Addr
	Name  string
	For   time.Duration // how long it is to stay open
}

// more is how much longer an address stays open than it must, so that not every answer is a change.
const more = 10 * time.Second

// OpenByName lets containers with lists reach addresses, or fails: then they are not open. It takes no lock, as it looks at nothing that it would spoil.
func (c *Conn) OpenByName(openings []Opening) error {
	t := c.table(judgeTable)
	var elements []element
	var questions []netlink.Message
	number := map[string]int{} // of an element
	for _, o := range openings {
		f := familyOf(o.Addr)
		s := &nftables.Set{Table: &t.Table, Name: listSet(nameSet(o.Ports, f), o.List), KeyType: f.addr, HasTimeout: true}
		e := newElement(s, o.Addr.AsSlice())
		e.Comment = o.Name[:min(len(o.Name), plugin.MaxKeyText)]
		e.Timeout = o.For + more
		if i, twice := number[e.id()]; twice {
			elements[i].Timeout = max(elements[i].Timeout, e.Timeout)
			continue
		}
		number[e.id()] = len(elements)
		elements = append(elements, e)
		questions = append(questions, t.elementQuestion(e))
	}
	answers, err := c.ask(questions...)
	if err != nil {
		return err
	}
	var short []element
	for i, a := range answers {
		if expirationOf(a) < elements[i].Timeout-more {
			short = append(short, elements[i])
		}
	}
	if len(short) == 0 {
		return nil
	}
	// Earlier kernels than 6.12 change nothing of an element that is there. It is added first, so that it can be removed.
	for _, e := range short {
		one := []nftables.SetElement{e.SetElement}
		for _, call := range []func(*nftables.Set, []nftables.SetElement) error{t.conn.SetAddElements, t.conn.SetDeleteElements, t.conn.SetAddElements} {
			_ = call(e.set, one) // fails for anonymous sets only
		}
	}
	err = t.commit()
	if errors.Is(err, unix.ENFILE) {
		err = fmt.Errorf("names have opened %d addresses for one list, and there is no room for more: %w", mostNamed, err)
	}
	return err
}

// expirationOf returns how long an element of an answer is still there, 0 if it is not.
func expirationOf(answer map[uint16][]byte) time.Duration {
	found := attributes(attributes(answer[unix.NFTA_SET_ELEM_LIST_ELEMENTS])[unix.NFTA_LIST_ELEM])
	ms := found[unix.NFTA_SET_ELEM_EXPIRATION]
	if len(ms) != 8 {
		return 0
	}
	return time.Duration(binary.BigEndian.Uint64(ms)) * time.Millisecond
}

// Opened is an address that is open because a name leads to it, for all containers with the list.
type Opened struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Until   time.Time  `json:"until"`
}

// OpenedOf lists what names have opened, if it is a list that is held.
func OpenedOf(h plugin.Held) (list []Opened, err error) {
	of, ok := h.Own.(own)
	if !ok || of.record.kind != kindList {
		return nil, nil
	}
	c, err := Open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	t, now := c.table(judgeTable), time.Now()
	for i := 0; ; i++ {
		there, err := t.hasListSets(of.record.link, nameSet(i, &ipv4))
		if err != nil || !there[0] {
			return list, err
		}
		for _, f := range families() {
			s := &nftables.Set{Table: &t.Table, Name: listSet(nameSet(i, f), of.record.link), KeyType: f.addr, HasTimeout: true}
			elements, err := c.GetSetElements(s)
			if err != nil {
				return list, kernelError("list what names have opened", err)
			}
			for _, e := range elements {
				addr, _ := netip.AddrFromSlice(e.Key)
				list = append(list, Opened{e.Comment, addr, now.Add(e.Expires).Truncate(time.Second)})
			}
		}
	}
}
