package resolver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/cnibox/cnibox/pkg/names"
)

// ttl is for how many seconds a container's name may be remembered: it is asked for on the same node, and the container may be gone.
const ttl = 5

// question is one that a container asks.
type question struct {
	w    dns.ResponseWriter
	m    *dns.Msg
	from netip.Addr
}

// ServeDNS implements dns.Handler. No packet of a container must end the agent.
func (r *Resolver) ServeDNS(w dns.ResponseWriter, m *dns.Msg) {
	q := &question{w, m, addressOf(w.RemoteAddr())}
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("a question could not be answered", "from", q.from, "error", fmt.Sprint("bug: ", p))
			r.send(q, q.reply(dns.RcodeServerFailure), failed)
		}
	}()
	a, how := r.answer(q, addressOf(w.LocalAddr()))
	r.send(q, a, how)
}

// reply returns an answer that has nothing but a code.
func (q *question) reply(code int) *dns.Msg {
	a := new(dns.Msg).SetRcode(q.m, code)
	a.RecursionAvailable = true
	return a
}

// answer answers for the names of the container's own networks, and asks the node's servers for all others.
func (r *Resolver) answer(q *question, gateway netip.Addr) (*dns.Msg, outcome) {
	opt := q.m.IsEdns0()
	switch {
	case q.m.Opcode != dns.OpcodeQuery:
		return q.reply(dns.RcodeNotImplemented), refused
	case len(q.m.Question) != 1:
		return q.reply(dns.RcodeFormatError), refused
	case opt != nil && opt.Version() != 0:
		return q.reply(dns.RcodeBadVers), refused
	}
	asked := q.m.Question[0]
	from := r.asker(q.from, gateway)
	if from == nil || asked.Qclass != dns.ClassINET || asked.Qtype == dns.TypeAXFR || asked.Qtype == dns.TypeIXFR {
		return q.reply(dns.RcodeRefused), refused
	}
	if a := r.own(q, from.networks); a != nil {
		return a, named
	}
	if from.record != nil {
		return r.listed(q, from)
	}
	if !r.forwards.take(from.id) {
		return q.reply(dns.RcodeServerFailure), limited
	}
	defer r.forwards.giveBack(from.id)
	return r.forward(q)
}

// own answers for names of containers; nil is that it is none.
func (r *Resolver) own(q *question, networks []string) *dns.Msg {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, asked := r.watch.table, q.m.Question[0]
	name := bare(asked.Name)
	a := q.reply(dns.RcodeSuccess)
	a.Authoritative = true
	header := func(kind uint16) dns.RR_Header {
		return dns.RR_Header{Name: asked.Name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
	}
	if of := t.find(ofName, networks, name); of != nil {
		for _, address := range addressesOf(of) {
			switch {
			case address.Is4() && (asked.Qtype == dns.TypeA || asked.Qtype == dns.TypeANY):
				a.Answer = append(a.Answer, &dns.A{Hdr: header(dns.TypeA), A: address.AsSlice()})
			case address.Is6() && (asked.Qtype == dns.TypeAAAA || asked.Qtype == dns.TypeANY):
				a.Answer = append(a.Answer, &dns.AAAA{Hdr: header(dns.TypeAAAA), AAAA: address.AsSlice()})
			}
		}
		rand.Shuffle(len(a.Answer), func(i, j int) { a.Answer[i], a.Answer[j] = a.Answer[j], a.Answer[i] })
		return a
	}
	if of := t.find(ofReverse, networks, name); of != nil {
		for _, record := range of {
			if asked.Qtype == dns.TypePTR || asked.Qtype == dns.TypeANY {
				a.Answer = append(a.Answer, &dns.PTR{Hdr: header(dns.TypePTR), Ptr: dns.Fqdn(longest(record))})
			}
		}
		return a
	}
	if t.find(ofDomain, networks, name) != nil { // which is there, and has no address
		return a
	}
	if t.isBelow(networks, name) {
		a.Rcode = dns.RcodeNameError
		return a
	}
	return nil
}

// longest returns a container's name with its domain, if it has one.
func longest(r *names.Record) string {
	if full := r.Full(r.Names[0]); full != "" {
		return full
	}
	return r.Names[0]
}

// addressesOf returns the addresses of some records, each once.
func addressesOf(records []*names.Record) (list []netip.Addr) {
	seen := map[netip.Addr]bool{}
	for _, r := range records {
		for _, a := range r.Addresses {
			if !seen[a] {
				list = append(list, a)
			}
			seen[a] = true
		}
	}
	return list
}

// forward asks the node's servers. Of what came with the question they get nothing but what says how to answer.
func (r *Resolver) forward(q *question) (*dns.Msg, outcome) {
	asked := &dns.Msg{MsgHdr: dns.MsgHdr{RecursionDesired: q.m.RecursionDesired, CheckingDisabled: q.m.CheckingDisabled, AuthenticatedData: q.m.AuthenticatedData}, Question: q.m.Question}
	opt := q.m.IsEdns0()
	asked.SetEdns0(packetSize, opt != nil && opt.Do())
	a, err := r.ask(q, asked)
	if err != nil {
		return q.reply(dns.RcodeServerFailure), failed
	}
	reply := q.reply(a.Rcode)
	reply.Authoritative, reply.AuthenticatedData, reply.RecursionAvailable = a.Authoritative, a.AuthenticatedData, a.RecursionAvailable
	reply.Answer, reply.Ns, reply.Extra = a.Answer, a.Ns, withoutOPT(a.Extra)
	return reply, forwarded
}

// ask asks the node's servers.
func (r *Resolver) ask(q *question, asked *dns.Msg) (*dns.Msg, error) {
	began := time.Now()
	a, err := r.upstream.ask(context.Background(), q.from, asked)
	r.figures.upstream.Observe(time.Since(began).Seconds())
	if err != nil {
		r.said.add(aboutServers, "the node's DNS servers don't answer", err)
		return nil, err
	}
	r.said.drop(aboutServers)
	return a, nil
}

func withoutOPT(all []dns.RR) (list []dns.RR) {
	for _, rr := range all {
		if rr.Header().Rrtype != dns.TypeOPT {
			list = append(list, rr)
		}
	}
	return list
}

// The reasons that dig shows of a refusal (RFC 8914). By the first one doctor knows this resolver from others.
const (
	whyRefused = "cnibox answers containers that have a name here"
	whyClosed  = "the name is not on the list of what this container may reach"
)

// IsRefusal reports whether an answer is a refusal of this resolver's, and not of another DNS server's.
func IsRefusal(a *dns.Msg) bool {
	opt := a.IsEdns0()
	return a.Rcode == dns.RcodeRefused && opt != nil && slices.ContainsFunc(opt.Option, func(o dns.EDNS0) bool {
		why, is := o.(*dns.EDNS0_EDE)
		return is && why.ExtraText == whyRefused
	})
}

// send is what every answer passes on its way to a container, the last moment to do something before the container can use it.
func (r *Resolver) send(q *question, a *dns.Msg, how outcome) {
	size := dns.MinMsgSize
	const longestCode = 15 // without EDNS
	if opt := q.m.IsEdns0(); opt != nil {
		size = min(max(size, int(opt.UDPSize())), packetSize)
		a.SetEdns0(packetSize, opt.Do())
		if why := map[outcome]string{refused: whyRefused, closed: whyClosed}[how]; why != "" && a.Rcode != dns.RcodeSuccess {
			own := a.IsEdns0()
			own.Option = append(own.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeProhibited, ExtraText: why})
		}
	} else if a.Rcode > longestCode {
		a.Rcode = dns.RcodeServerFailure
	}
	if q.w.RemoteAddr().Network() == "tcp" {
		size = dns.MaxMsgSize
	}
	a.Truncate(size)
	r.figures.count(how)
	if err := q.w.WriteMsg(a); err != nil {
		r.log.Debug("an answer did not leave", "to", q.from, "error", err)
	}
}
