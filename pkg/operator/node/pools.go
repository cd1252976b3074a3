package node

import (
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Pool is the addresses that a network hands out from one range set.
type Pool struct {
	Subnet string `json:"subnet"` // of the first range
	Range  string `json:"range"`  // first-last, separated by ","
	Size   uint64 `json:"size"`
	Used   uint64 `json:"used"`
	Gone   uint64 `json:"gone"` // of the used, those of attachments whose namespace is gone

	By map[string]int `json:"by,omitempty"` // of the used, how many each host has, if hosts share the pool

	pool ranges.Pool
}

// Contains reports whether an address lies in the pool.
func (p *Pool) Contains(a netip.Addr) bool { return p.pool.Contains(a) }

// isWhole reports whether the pool has all addresses of its subnet that hosts can have.
func (p *Pool) isWhole() bool {
	if len(p.pool.Ranges) != 1 {
		return false
	}
	r := p.pool.Ranges[0]
	return r.First == r.Subnet.Masked().Addr().Next() && !r.Subnet.Contains(r.Last.Next().Next())
}

// Gateway returns the address that the pool does not hand out though it lies in it; invalid if there is none.
func (p *Pool) Gateway(of netip.Addr) netip.Addr {
	if i := p.pool.Find(of); i >= 0 {
		return p.pool.Ranges[i].Gateway
	}
	return netip.Addr{}
}

// Percent returns how much of the pool is used.
func (p *Pool) Percent() int {
	if p.Size == 0 {
		return 100
	}
	return int(float64(p.Used) / float64(p.Size) * 100)
}

// Level says how full the pool is: "ok", "weak" from 80 percent on, "bad" from 95 on.
func (p *Pool) Level() string {
	switch percent := p.Percent(); {
	case percent >= 95:
		return "bad"
	case percent >= 80:
		return "weak"
	}
	return "ok"
}

// Name is the pool's subnet, or its range where that has not all of the subnet.
func (p *Pool) Name() string {
	if p.isWhole() {
		return p.Subnet
	}
	return p.Range
}

// SizeText writes the size, that of a pool of IPv6 as a power of two.
func (p *Pool) SizeText() string {
	if p.Size <= 1<<32 {
		return strconv.FormatUint(p.Size, 10)
	}
	return fmt.Sprintf("2^%d", bits.Len64(p.Size-1))
}

// lender is an IPAM plugin that hands out addresses from pools.
type lender interface {
	Pools(config *conf.Object) ([]ranges.Pool, error)
}

// ReadPools asks the network's IPAM plugins what they hand out. Status and the linter say what can't be used in a configuration.
func (w *Network) ReadPools(all plugin.Table) {
	for _, p := range netconf.Of(w.List, w.File, all.Find).Inside() {
		for _, pool := range PoolsOf(p) {
			w.Pools = append(w.Pools, &Pool{Subnet: pool.Ranges[0].Subnet.String(), Range: pool.String(), Size: pool.Size(), pool: pool})
		}
	}
}

// completer is a plugin that writes the section ipam of the one that it calls, as flannel does.
type completer interface {
	Complete(config *conf.Object) *conf.Object
}

// PoolsOf returns what a plugin's IPAM plugin hands out: a container has one address of each. There are none if the configuration is wrong.
func PoolsOf(p *netconf.Part) []ranges.Pool {
	ipam := p.IPAM()
	if ipam == nil || ipam.Row == nil {
		return nil
	}
	l, ok := ipam.Row.Plugin.(lender)
	if !ok {
		return nil
	}
	config := p.Config
	if p.Row != nil {
		if c, ok := p.Row.Plugin.(completer); ok {
			config = c.Complete(config)
		}
	}
	pools, err := l.Pools(config)
	if err != nil {
		return nil
	}
	return pools
}
