package reference

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// The reference bridge plugin has two chains for each attachment with macspoofchk,
// in table bridge nat. A rule of its base chain jumps to the first, a rule there to
// the second, which compares the address. The names tell the container and the
// interface, but not the network. The table may be somebody else's (ebtables).

const (
	spoofCheckBase   = "PREROUTING"
	spoofCheckPrefix = "cni-br-iface-"
	spoofCheckMAC    = "-mac" // ends the name of the second chain
)

func spoofCheckTable() nftables.Table {
	return nftables.Table{Family: nftables.TableFamilyBridge, Name: "nat"}
}

// SpoofCheckTables are the tables in which DelSpoofCheck looks.
func SpoofCheckTables() []nftables.Table { return []nftables.Table{spoofCheckTable()} }

func spoofCheckName(key plugin.Key) string { return key.ContainerID + "-" + key.IfName }

// HasSpoofCheck reports whether the attachment has a spoof check.
func HasSpoofCheck(c *nft.Conn, key plugin.Key) (bool, error) {
	there, err := c.HasChains(spoofCheckTable(), spoofCheckPrefix+spoofCheckName(key))
	return err == nil && there[0], err
}

// DelSpoofCheck removes the chains of an attachment.
func DelSpoofCheck(ctx context.Context, c *nft.Conn, key plugin.Key) error {
	there, err := HasSpoofCheck(c, key)
	if err != nil || !there {
		return err
	}
	return removeSpoofChecks(ctx, c, []string{spoofCheckName(key)})
}

// GCSpoofCheck removes the chains of containers that are neither valid nor in
// libcni's cache. Without a cache nobody knows which those are.
func GCSpoofCheck(ctx context.Context, c *nft.Conn, valid []plugin.Key) error {
	there, err := c.HasTables(spoofCheckTable())
	if err != nil || !there[0] {
		return err
	}
	cache := &results{}
	if known, err := cache.exists(); err != nil || !known {
		return err
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyBridge)
	if err != nil {
		return fmt.Errorf("list the chains of table bridge nat: %w", err)
	}
	isValid := map[string]bool{}
	for _, k := range valid {
		isValid[spoofCheckName(k)] = true
	}
	var stale []string
	for _, chain := range chains {
		name, ok := strings.CutPrefix(chain.Name, spoofCheckPrefix)
		if !ok || chain.Table.Name != spoofCheckTable().Name || strings.HasSuffix(name, spoofCheckMAC) {
			continue
		}
		if !isValid[name] && !cache.mayHave(name) {
			stale = append(stale, name)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	return removeSpoofChecks(ctx, c, stale)
}

// removeSpoofChecks removes the chains of some CONTAINERID-IFNAME.
func removeSpoofChecks(ctx context.Context, c *nft.Conn, names []string) error {
	return nft.Locked(ctx, func() error {
		err := tryToRemove(ctx, c, names)
		if errors.Is(err, unix.ENOENT) { // a reference plugin removed one of them
			err = tryToRemove(ctx, c, names)
		}
		return err
	})
}

func tryToRemove(ctx context.Context, c *nft.Conn, names []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := spoofCheckTable()
	var chains []string // those that are jumped from first
	for _, name := range names {
		chains = append(chains, spoofCheckPrefix+name, spoofCheckPrefix+name+spoofCheckMAC)
	}
	there, err := c.HasChains(t, chains...)
	if err != nil {
		return err
	}
	isGone := map[string]bool{}
	for i, name := range chains {
		isGone[name] = there[i]
	}
	rules, err := rulesOf(c, t, spoofCheckBase)
	if err != nil {
		return err
	}
	for _, r := range rules {
		if isGone[targetOf(r)] {
			_ = c.DelRule(r) // fails for a rule without a handle only
		}
	}
	for i, name := range chains {
		if there[i] {
			c.FlushChain(&nftables.Chain{Table: &t, Name: name})
		}
	}
	for i, name := range chains {
		if there[i] {
			c.DelChain(&nftables.Chain{Table: &t, Name: name})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("remove what the reference bridge plugin made from table bridge nat: %w", err)
	}
	return nil
}
