package probe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
)

const addFirewall = `add {"type": "firewall"} to the network's plugins, whose rules accept its packets, or a rule of your own`

// whyFiltered returns a chain that drops what is forwarded unless a rule accepts it. The rules themselves are not read.
func whyFiltered(f family) (reason, remedy string) {
	if legacyDrops(f) {
		return "chain FORWARD of table filter of iptables-legacy drops what none of its rules accepts", addFirewall
	}
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
		return fmt.Sprintf("chain %s of table %s %s drops what none of its rules accepts", chains[i].Name, families[chains[i].Table.Family], chains[i].Table.Name), addFirewall
	}
	return "", ""
}

// legacyDrops reports whether the old kind of iptables, whose rules nftables does not list, drops what is forwarded. It is asked only if it
// is in use: asking loads its modules.
func legacyDrops(f family) bool {
	names, program := "/proc/thread-self/net/ip_tables_names", "iptables-legacy"
	if f.name == "IPv6" {
		names, program = "/proc/thread-self/net/ip6_tables_names", "ip6tables-legacy"
	}
	tables, err := os.ReadFile(names)
	if err != nil || !slices.Contains(strings.Fields(string(tables)), "filter") {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	rules, err := exec.CommandContext(ctx, program, "-S", "FORWARD").Output()
	return err == nil && strings.HasPrefix(string(rules), "-P FORWARD DROP")
}
