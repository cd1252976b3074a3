// Package firewall sends real packets along every path that traffic of a container takes, for each way the rules can be kept in:
// nftables, and iptables of both flavours. It also loads a node with attachments, many at once and thousands of ports.
//
// The tests drive the built binaries through libcni, in nodes made of namespaces. TestMatrix has a subtest for each path, backend,
// protocol and family. Where there is no promise it says why, and asserts what happens there instead, as far as the kernel can do
// it at all. What the plugins promise besides is in test/conformance; the unit tests of pkg/netfilter are about what neither can
// reach.
//
// # Other plugins
//
// The flag -plugins tells whose plugins TestMatrix and TestConcurrent test, which shows whether the tests are right:
// "reference" and "debian" are the reference plugins, current and as packaged.
//
//	go test ./test/firewall -run TestMatrix -args -plugins=reference
//
// Version 1.9.1 passes all paths with iptables. With nftables it can't promise that Services win, takes [::1] from the host, lets
// pods of one bridge reach each other through the host only behind br_netfilter, with the client's own address, and leaves
// published ports of a node that drops to the administrator.
//
// # Other kernels
//
// The test binary needs no Go tool, so that it can run in a guest as root, over the file system of the machine. There modules
// have to be loaded that nobody asks the kernel for by name (the others it loads with modprobe by itself):
//
//	modprobe -a veth bridge br_netfilter nf_tables nft_chain_nat sctp
//
//	go test -c -o /tmp/firewall.test ./test/firewall
//	cd test/firewall && CNIBOX_BIN_DIR=/path/to/bin /tmp/firewall.test -test.parallel=2
//
// Many kernels made for virtual machines lack SCTP sockets: those cells are then skipped. Debian's 6.1 has them.
package firewall
