// Package iptables keeps what attachments need of the packet filter in rules of
// iptables, the way the reference plugins (containernetworking/plugins 1.9) do:
// the same chains, names, comments and rules. What is made here the reference
// plugins can check and remove, and what they made can be checked and removed
// here.
//
// A change is one run of iptables-restore for each family of addresses that it
// concerns, which happens completely or not at all. It is tried on the guess
// that things are as they should be, which lines in it verify (-C); when that
// fails the table is read (iptables-save) and the change is planned from what is
// there. With ip6tables-legacy it always is (see sloppy). What can be asked of
// the kernel itself is: whether a chain is there, and so whether anything can
// jump to it. A DEL for an attachment that has nothing runs no program.
//
// ADD uses the plain names, iptables-restore and ip6tables-restore, of whichever
// flavour they are. DEL, CHECK and GC look in both flavours, nf_tables and
// legacy, and use the program of the one where something is.
//
// # Records
//
// Rules of iptables do not say which interface of a container they are for, and
// some not even which container. Below /run/cnibox/iptables there is a record
// for each container and network (records), written before the rules and removed
// after them, and three indexes into the records: who has published a port
// (ports), who had an address last (addresses), and who wants a bridge protected
// (bridges). All of it is readable, and means nothing after a reboot, as the
// rules themselves. One lock covers it; unlike other locks of this project it is
// held while a program runs, because the programs are what is to be serialised.
//
// # Limits
//
// What follows from the form of the reference plugins' rules:
//
//   - Chains are named by network and container. Several interfaces of a
//     container on one network share them. Here each is added and removed
//     alone, but the reference plugins' DEL of one removes the rules of all, and
//     a DEL here of something that they made takes all port maps too.
//   - The rules are appended to iptables' chains, at priority -100. kube-proxy
//     in nftables mode has its own chains there, so which of a Service and a
//     published port of the same address wins depends on which was made first.
//   - Of a port published on one host address and the same port published on
//     all of them by another container, the one published first gets the
//     connections.
//   - A port that the reference plugin has published is not seen as taken.
//   - route_localnet is set on the link to the container and stays set. There is
//     no guard against packets to 127.0.0.0/8 from the link (CVE-2020-8558): the
//     nftables backend has one. It is never set on lo.
//   - Firewall rules carry addresses only. GC leaves those that the reference
//     plugin made, and a DEL needs to be told the addresses.
//   - Firewall rules leave new connections to published ports to the policy of
//     chain FORWARD, or to the administrator's chain. The nftables backend lets
//     them pass.
//   - Between containers of one bridge, packets go by chain FORWARD only if
//     br_netfilter is loaded, which ingress policy "isolated" therefore needs.
//   - The shared chains (CNI-HOSTPORT-*, CNI-FORWARD, the administrator's,
//     CNI-ISOLATION-STAGE-*) and the jumps to them stay, as the reference's do.
//     A bridge's rules in the latter go with the last attachment that wanted
//     them, unless they were there before the first.
package iptables
