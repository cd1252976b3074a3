// Package iptables keeps what attachments need of the packet filter in rules of iptables, the way the reference plugins
// (containernetworking/plugins 1.9) do: the same chains, names, comments and rules. The reference plugins can check
// and remove what is made here, and what they made can be checked and removed here.
//
// A change is planned from what iptables-save tells of a table, and made by one run of iptables-restore for each family of
// addresses, completely or not at all, under a lock. ADD uses the plain names of the programs, of whichever flavour they
// are. DEL, CHECK and GC look in both flavours, nf_tables and legacy, where there is something: that is asked of the
// kernel, so that no program runs where there is nothing of iptables.
//
// The form of the reference plugins' rules has consequences:
//
//   - Several interfaces of a container on one network share chains. Here each is added and removed alone, but the
//     reference plugins' DEL of one removes the rules of all, as does a DEL here of something that they made.
//   - The rules are appended to iptables' chains, at priority -100. kube-proxy in nftables mode has its own chains there, so
//     which of a Service and a published port of the same address wins depends on which was made first.
//   - Of a port published on one host address and the same port published on all of them by another container, the one
//     published first gets the connections.
//   - route_localnet is set on the link to the container and stays set, as does the rule in table raw that guards it.
//   - Firewall rules carry addresses only. GC leaves those that the reference plugin made, and a DEL needs to be told the
//     addresses. New connections to published ports are left to the policy of chain FORWARD, or to the administrator's chain.
//   - Between containers of one bridge, packets go by chain FORWARD only if br_netfilter is loaded, which ingress policy
//     "isolated" therefore needs.
//   - The shared chains (CNI-HOSTPORT-*, CNI-FORWARD, the administrator's, CNI-ISOLATION-STAGE-*) and the jumps to them stay.
package iptables
