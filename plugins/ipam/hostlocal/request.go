package hostlocal

import (
	"net/netip"
	"strings"

	"github.com/cnibox/cnibox/pkg/lease"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// pools returns the range sets for the store, each with the address that the
// runtime asks for from it. A set serves one request, and each request must be
// served.
func (c *config) pools() ([]lease.Pool, error) {
	pools := make([]lease.Pool, 0, len(c.sets))
	for i, s := range c.sets {
		pools = append(pools, s.pool(i))
	}
	for _, q := range c.requests {
		i := c.setOf(q.address)
		if i < 0 {
			return nil, plugin.ConfigError("ask for an address of a configured range: "+c.allRanges(),
				"failed to allocate all requested IPs: %s (%s) is not in range set %s", q.address, q.source, c.allRanges())
		}
		r, _ := c.sets[i].rangeOf(q.address)
		if q.address == r.Gateway {
			return nil, plugin.ConfigError("ask for another address", "failed to allocate for range %d: requested ip %s (%s) is subnet's gateway", i, q.address, q.source)
		}
		if other := pools[i].Want; other.IsValid() {
			return nil, plugin.ConfigError("ask for at most one address of each range set",
				"failed to allocate all requested IPs: %s (%s): range set %d is to serve %s already", q.address, q.source, i, other)
		}
		pools[i].Want = q.address
	}
	return pools, nil
}

// setOf returns the number of the set that holds a, -1 if none does.
func (c *config) setOf(a netip.Addr) int {
	for i, s := range c.sets {
		if _, ok := s.rangeOf(a); ok {
			return i
		}
	}
	return -1
}

func (c *config) allRanges() string {
	var texts []string
	for i, s := range c.sets {
		texts = append(texts, s.pool(i).String())
	}
	return strings.Join(texts, ",")
}
