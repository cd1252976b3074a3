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

	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// operations is how many etcd allows in a transaction, those one in another added up, unless it is told otherwise.
const operations = 128

// tries is how many addresses one transaction asks for, of which it takes the first that is free. An
// address needs two operations, one in another. Of a pool that is full to nine tenths one of so many is free in 99.4 of 100 cases.
const tries = 48

// parts is how many parts a pool has that are counted.
const parts = 200

// readable is of how many addresses of a pool it is read which are taken.
const readable = 1024

// allocate takes one address of each pool, all or none. The caller has made sure that the attachment has none.
func (p *pool) allocate(ctx context.Context, o owner, pools []ranges.Pool, lease clientv3.LeaseID) ([]netip.Addr, error) {
	t := transaction{compare: []clientv3.Cmp{isAbsent(p.space.attachment(o)).WithPrefix(), isAbsent(p.space.ended(o, p.now))}}
	var asked [][]netip.Addr
	for _, each := range pools {
		asked = append(asked, candidates(each, min(tries, (operations-max(len(pools), 5)-2)/2)))
		t.then = append(t.then, p.first(o, asked[len(asked)-1], lease))
	}
	answer, has, err := p.commitTake(ctx, o, t)
	if err != nil {
		return nil, err
	}
	if !answer.Succeeded {
		return p.adopt(has, o, pools)
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
func (p *pool) adopt(found *pb.RangeResponse, o owner, pools []ranges.Pool) (list []netip.Addr, err error) {
	for _, each := range pools {
		var of []netip.Addr
		for _, kv := range found.Kvs {
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
func candidates(p ranges.Pool, most int) (list []netip.Addr) {
	if p.Want.IsValid() {
		return []netip.Addr{p.Want}
	}
	if p.Size() <= uint64(most) {
		for a := range p.After(netip.Addr{}) {
			list = append(list, a)
		}
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return list
	}
	for len(list) < most {
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
	first, last := halves(r.First), halves(r.Last)
	low, borrow := bits.Sub64(last[1], first[1], 0)
	if high, _ := bits.Sub64(last[0], first[0], borrow); high > 0 || low >= most {
		return most
	}
	return low + 1
}

// plus returns the nth address behind a.
func plus(a netip.Addr, n uint64) netip.Addr {
	w := halves(a)
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

func halves(a netip.Addr) [2]uint64 {
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

// search takes an address of a pool that has few free ones: it reads which addresses are free in parts of the pool that have room.
func (p *pool) search(ctx context.Context, o owner, from ranges.Pool, lease clientv3.LeaseID) (netip.Addr, error) {
	if from.Want.IsValid() {
		return netip.Addr{}, p.refuseWanted(ctx, from)
	}
	for {
		list, err := p.findFree(ctx, from)
		if err != nil {
			return netip.Addr{}, err
		}
		if len(list) == 0 {
			return netip.Addr{}, plugin.CodeErrorf(types.ErrTryAgainLater, "`cnictl show networks` says which hosts have them; enlarge the range, or free what is not used",
				"failed to allocate for range %d: no IP addresses available in range set: %s: %d addresses, all taken", from.Index, from, from.Size())
		}
		t := transaction{compare: []clientv3.Cmp{isAbsent(p.space.ended(o, p.now))}, then: []clientv3.Op{p.first(o, list, lease)}}
		for _, r := range from.Ranges {
			t.compare = append(t.compare, isAbsent(p.space.holds(o, r.First)).WithRange(p.space.holds(o, r.Last)+"\x00"))
		}
		answer, has, err := p.commitTake(ctx, o, t)
		if err != nil {
			return netip.Addr{}, err
		}
		if !answer.Succeeded {
			adopted, err := p.adopt(has, o, []ranges.Pool{from})
			if err != nil {
				return netip.Addr{}, err
			}
			return adopted[0], nil
		}
		if a := taken(answer.Responses[0].GetResponseTxn(), list); a.IsValid() {
			return a, nil
		}
	}
}

// findFree returns some of a pool's addresses that are free, in any order, none if all are taken.
func (p *pool) findFree(ctx context.Context, of ranges.Pool) ([]netip.Addr, error) {
	if of.Size() <= readable {
		return p.readFree(ctx, of)
	}
	for {
		part, err := p.roomy(ctx, of)
		if err != nil || len(part.Ranges) == 0 {
			return nil, err
		}
		if list, err := p.findFree(ctx, part); err != nil || len(list) > 0 { // else others have filled it meanwhile
			return list, err
		}
	}
}

// readFree is findFree for a part that is small enough to be read.
func (p *pool) readFree(ctx context.Context, of ranges.Pool) (list []netip.Addr, err error) {
	answer, err := p.commit(ctx, transaction{then: p.gets(of.Ranges, clientv3.WithKeysOnly())})
	if err != nil {
		return nil, err
	}
	isTaken := map[string]bool{}
	for _, part := range answer.Responses {
		for _, kv := range part.GetResponseRange().Kvs {
			isTaken[string(kv.Key)] = true
		}
	}
	for a := range of.After(netip.Addr{}) {
		if !isTaken[p.space.address(a)] {
			list = append(list, a)
		}
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(len(list), tries)], nil
}

// gets read the addresses in some ranges.
func (p *pool) gets(of []ranges.Range, how clientv3.OpOption) (list []clientv3.Op) {
	for _, r := range of {
		list = append(list, clientv3.OpGet(p.space.address(r.First), clientv3.WithRange(p.space.address(r.Last)+"\x00"), how))
	}
	return list
}

// roomy counts what is taken in parts of a pool, of a few at first, and returns some that have free addresses: as many as can be read, or one that is larger.
func (p *pool) roomy(ctx context.Context, of ranges.Pool) (ranges.Pool, error) {
	pieces, has := split(of), uint64(0)
	rand.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	of.Ranges = nil
	for most := 8; len(pieces) > 0 && has == 0; most = min(2*most, operations) {
		some := pieces[:min(most, len(pieces))]
		pieces = pieces[len(some):]
		answer, err := p.commit(ctx, transaction{then: p.gets(some, clientv3.WithCountOnly())})
		if err != nil {
			return of, err
		}
		for i, r := range some {
			size := ranges.Pool{Ranges: some[i : i+1]}.Size()
			if uint64(answer.Responses[i].GetResponseRange().Count) < size && (has == 0 || has < readable && size <= readable-has) {
				of.Ranges, has = append(of.Ranges, r), has+size
			}
		}
	}
	return of, nil
}

// split divides a pool's ranges into parts.
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
