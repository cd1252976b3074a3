package probe

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
)

// whyFiltered returns a chain that drops what is forwarded unless a rule accepts it. The rules themselves are not read.
func whyFiltered(f family) (reason, remedy string) {
	conn, err := nftables.New()
	if err != nil {
		return "", ""
	}
	chains, err := conn.ListChains()
	if err != nil {
		return "", ""
	}
	families := map[nftables.TableFamily]string{nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip"}
	if f.name == "IPv6" {
		families = map[nftables.TableFamily]string{nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv6: "ip6"}
	}
	drops := func(c *nftables.Chain) bool {
		return families[c.Table.Family] != "" && c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
	}
	if i := slices.IndexFunc(chains, drops); i >= 0 {
		return fmt.Sprintf("chain %s of table %s %s drops what none of its rules accepts", chains[i].Name, families[chains[i].Table.Family], chains[i].Table.Name),
			`add {"type": "firewall"} to the network's plugins, whose rules accept its packets, or a rule of your own`
	}
	return "", ""
}
