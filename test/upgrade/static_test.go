package upgrade

// staticChains begin the lines of a snapshot that tell of what the reference
// plugins make once for all attachments, outside of tables of their own, and
// never remove. With iptables-nft the tables stand in nft's listing too.
func staticChains() []string {
	lines := []string{"nft table bridge nat"} // of macspoofchk, whose test looks into it
	for _, family := range []string{"ip", "ip6"} {
		for _, table := range []string{"nat", "filter"} {
			lines = append(lines, "nft table "+family+" "+table)
		}
		for _, flavour := range []string{"nft", "legacy"} {
			of := "iptables " + family + " " + flavour + " "
			for _, s := range []string{
				// portmap
				"nat: chain CNI-HOSTPORT-DNAT -",
				"nat: chain CNI-HOSTPORT-MASQ -",
				"nat: chain CNI-HOSTPORT-SETMARK -",
				"nat: -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
				"nat: -A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
				`nat: -A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ`,
				"nat: -A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE",
				`nat: -A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000`,
				// firewall
				"filter: chain CNI-FORWARD -",
				"filter: chain CNI-ADMIN -",
				`filter: -A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD`,
				`filter: -A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN`,
			} {
				lines = append(lines, of+s)
			}
		}
	}
	return lines
}

// forwardRules begin the lines of what firewall has in iptables for each address.
// Such a rule names no attachment, so that one made by the reference plugin is
// found only by a DEL that is told the addresses (prevResult). What stays without
// lets an address connect, and be answered, that the next container may get.
func forwardRules() (lines []string) {
	for _, family := range []string{"ip", "ip6"} {
		for _, flavour := range []string{"nft", "legacy"} {
			for _, side := range []string{"-s ", "-d "} {
				lines = append(lines, "iptables "+family+" "+flavour+" filter: -A CNI-FORWARD "+side)
			}
		}
	}
	return lines
}
