package etcd

import (
	"context"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/ranges"
)

// tries is how many addresses one transaction asks for, of which it takes the first that is free. etcd allows 128 operations one in another, and an
// address needs two. Of a pool that is full to nine tenths one of so many is free in 99.4 of 100 cases.
const tries = 48

// parts is how many parts of a pool are counted in one transaction.
const parts = 100

// take takes one address of each pool, all or none. The caller has made sure that the attachment has none.
func (p *pool) take(ctx context.Context, o owner, pools []ranges.Pool, lease clientv3.LeaseID) ([]netip.Addr, error) {
	held := p.space.held(o)
	t := transaction{
		compare:   []clientv3.Cmp{isAbsent(held).WithPrefix(), isAbsent(p.space.ended(o, p.now))},
		otherwise: []clientv3.Op{clientv3.OpGet(held, clientv3.WithPrefix(), clientv3.WithKeysOnly())},
	}
	var asked [][]netip.Addr
	for _, each := range pools {
		asked = append(asked, candidates(each))
		t.then = append(t.then, p.first(o, asked[len(asked)-1], lease))
	}
	answer, err := p.commit(ctx, t)
	if err != nil {
		return nil, err
	}
	if !answer.Succeeded {
		return p.adopt(answer.Responses[0].GetResponseRange(), o, pools)
	}
	var got []netip.Addr
	for i, each := range pools {
		a := taken(answer.Responses[i].GetResponseTxn(), asked[i])
		if !a.IsValid() {
			if a, err = p.search(ctx, o, each, lease); err != nil {
				return nil, err
			}
		}
		got = append(got, a)
	}
	return got, nil
}

// adopt returns what etcd has of an attachment: the answer to an earlier attempt was lost.
func (p *pool) adopt(held *pb.RangeResponse, o owner, pools []ranges.Pool) (list []netip.Addr, err error) {
	for _, each := range pools {
		var of []netip.Addr
		for _, kv := range held.Kvs {
			if _, a, ok := p.space.parseHeld(o.Host, string(kv.Key)); ok && each.Contains(a) && (!each.Want.IsValid() || a == each.Want) {
				of = append(of, a)
			}
		}
		if len(of) != 1 {
			return nil, plugin.CodeErrorf(types.ErrTryAgainLater, "repeat the call", "etcd has other addresses of %s than asked for, which are freed first", o)
		}
		list = append(list, of[0])
	}
	return list, nil
}

// candidates returns addresses of a pool in any order: all, or some of many.
func candidates(p ranges.Pool) (list []netip.Addr) {
	if p.Want.IsValid() {
		return []netip.Addr{p.Want}
	}
	if p.Size() <= tries {
		for a := range p.After(netip.Addr{}) {
			list = append(list, a)
		}
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return list
	}
	for len(list) < tries {
		if a := random(p); !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// random returns an address that the pool has to hand out.
func random(p ranges.Pool) netip.Addr {
	var all uint64
	for _, r := range p.Ranges {
		all += span(r)
	}
	for {
		n := rand.Uint64N(all)
		for _, r := range p.Ranges {
			if n >= span(r) {
				n -= span(r)
				continue
			}
			if a := plus(r.First, n); a != r.Gateway {
				return a
			}
			break
		}
	}
}

// span returns how many addresses a range has, with its gateway. Of a very large one it is a part.
func span(r ranges.Range) uint64 {
	const most = 1 << 56 // so that the sum of some is no more than 64 bits
	first, last := words(r.First), words(r.Last)
	low, borrow := bits.Sub64(last[1], first[1], 0)
	if high, _ := bits.Sub64(last[0], first[0], borrow); high > 0 || low >= most {
		return most
	}
	return low + 1
}

// plus returns the nth address behind a.
func plus(a netip.Addr, n uint64) netip.Addr {
	w := words(a)
	low, carry := bits.Add64(w[1], n, 0)
	var all [16]byte
	binary.BigEndian.PutUint64(all[:8], w[0]+carry)
	binary.BigEndian.PutUint64(all[8:], low)
	sum := netip.AddrFrom16(all)
	if a.Is4() {
		return sum.Unmap()
	}
	return sum
}

func words(a netip.Addr) [2]uint64 {
	all := a.As16()
	return [2]uint64{binary.BigEndian.Uint64(all[:8]), binary.BigEndian.Uint64(all[8:])}
}

// first is an operation that takes the first of some addresses that is free.
func (p *pool) first(o owner, list []netip.Addr, lease clientv3.LeaseID) clientv3.Op {
	var rest []clientv3.Op
	for _, a := range slices.Backward(list) {
		rest = []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{isAbsent(p.space.address(a))}, p.puts(o, a, lease), rest)}
	}
	return rest[0]
}

// puts are the operations that make an address the owner's.
func (p *pool) puts(o owner, a netip.Addr, lease clientv3.LeaseID) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpPut(p.space.address(a), o.value(a), clientv3.WithLease(lease)),
		clientv3.OpPut(p.space.holds(o, a), p.now.Format(time.RFC3339), clientv3.WithLease(lease)),
	}
}

// taken returns which of the addresses that first was given it has taken, the zero Addr if none was free.
func taken(answer *pb.TxnResponse, list []netip.Addr) netip.Addr {
	for _, a := range list {
		if answer.Succeeded {
			return a
		}
		if len(answer.Responses) == 0 {
			break
		}
		answer = answer.Responses[0].GetResponseTxn()
	}
	return netip.Addr{}
}

// search takes an address of a pool that has few free ones: it counts what is taken in parts of the pool, and looks further in one that is not full.
func (p *pool) search(ctx context.Context, o owner, from ranges.Pool, lease clientv3.LeaseID) (netip.Addr, error) {
	if from.Want.IsValid() {
		return netip.Addr{}, p.refuseWanted(ctx, from)
	}
	for part := from; ; {
		isWhole := part.String() == from.String()
		if isWhole || part.Size() > tries {
			var err error
			if part, err = p.roomy(ctx, part); err != nil {
				return netip.Addr{}, err
			}
		}
		if len(part.Ranges) == 0 && !isWhole { // others have filled it meanwhile
			part = from
			continue
		}
		if len(part.Ranges) == 0 {
			return netip.Addr{}, plugin.CodeErrorf(types.ErrTryAgainLater, "`cnictl show networks` says which hosts have them; enlarge the range, or free what is not used",
				"failed to allocate for range %d: no IP addresses available in range set: %s: %d addresses, all taken", from.Index, from, from.Size())
		}
		if part.Size() > tries {
			continue
		}
		list := candidates(part)
		held := p.space.held(o)
		t := transaction{
			compare:   []clientv3.Cmp{isAbsent(p.space.ended(o, p.now))},
			then:      []clientv3.Op{p.first(o, list, lease)},
			otherwise: []clientv3.Op{clientv3.OpGet(held, clientv3.WithPrefix(), clientv3.WithKeysOnly())},
		}
		for _, r := range from.Ranges {
			t.compare = append(t.compare, isAbsent(p.space.holds(o, r.First)).WithRange(p.space.holds(o, r.Last)+"\x00"))
		}
		answer, err := p.commit(ctx, t)
		if err != nil {
			return netip.Addr{}, err
		}
		if !answer.Succeeded {
			has, err := p.adopt(answer.Responses[0].GetResponseRange(), o, []ranges.Pool{from})
			if err != nil {
				return netip.Addr{}, err
			}
			return has[0], nil
		}
		if a := taken(answer.Responses[0].GetResponseTxn(), list); a.IsValid() {
			return a, nil
		}
		part = from // others were faster
	}
}

// roomy returns one of the parts of a pool that have free addresses, one without ranges if there is none.
func (p *pool) roomy(ctx context.Context, of ranges.Pool) (ranges.Pool, error) {
	pieces := split(of)
	var t transaction
	for _, r := range pieces {
		t.then = append(t.then, clientv3.OpGet(p.space.address(r.First), clientv3.WithRange(p.space.address(r.Last)+"\x00"), clientv3.WithCountOnly()))
	}
	answer, err := p.commit(ctx, t)
	if err != nil {
		return of, err
	}
	var free []ranges.Range
	for i, r := range pieces {
		size := ranges.Pool{Ranges: []ranges.Range{r}}.Size()
		if uint64(answer.Responses[i].GetResponseRange().Count) < size {
			free = append(free, r)
		}
	}
	of.Ranges = nil
	if len(free) > 0 {
		of.Ranges = []ranges.Range{free[rand.IntN(len(free))]}
	}
	return of, nil
}

// split divides a pool's ranges into parts, at most some more than there can be in a transaction.
func split(of ranges.Pool) (pieces []ranges.Range) {
	var all uint64
	for _, r := range of.Ranges {
		all += span(r)
	}
	size := all/uint64(parts-min(len(of.Ranges), parts/2)) + 1
	for _, r := range of.Ranges {
		for first := r.First; first.IsValid() && !r.Last.Less(first); {
			piece := r
			piece.First = first
			if last := plus(first, size-1); last.Less(r.Last) && first.Less(last) || last == first && last.Less(r.Last) {
				piece.Last = last
			}
			pieces = append(pieces, piece)
			first = piece.Last.Next()
		}
	}
	return pieces
}

// refuseWanted says who has the address that is asked for.
func (p *pool) refuseWanted(ctx context.Context, from ranges.Pool) error {
	answer, err := p.commit(ctx, transaction{then: []clientv3.Op{clientv3.OpGet(p.space.address(from.Want))}})
	if err != nil {
		return err
	}
	by := "nobody by now"
	if found := answer.Responses[0].GetResponseRange().Kvs; len(found) > 0 {
		by = parseOwner(found[0].Value).String()
	}
	return plugin.CodeErrorf(types.ErrTryAgainLater, "ask for another address or, if that attachment is gone, free it by DEL or `cnictl gc "+p.network+" --apply` on its host",
		"failed to allocate for range %d: requested IP address %s is not available in range set %s: it is held by %s", from.Index, from.Want, from, by)
}
