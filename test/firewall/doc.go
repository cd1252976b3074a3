// Package firewall sends real packets along every path that traffic of a container with published ports takes, for each way the
// rules can be kept in: nftables, and iptables of both flavours. It also loads a node with attachments, many at once and
// thousands of ports.
//
// The tests drive the built binaries through libcni, in nodes made of namespaces. The table that TestMatrix prints (and writes
// to the file that FIREWALL_MATRIX names) has a cell for each path, backend, protocol and family: ok, or n/a and the reason.
// The n/a cells assert what happens there instead, as far as the kernel can do it at all.
//
// # Other plugins
//
// The flag -plugins tells whose plugins TestMatrix and TestConcurrent test, which shows whether the tests are right:
// "reference" and "debian" are the reference plugins, current and as packaged.
//
//	go test ./test/firewall -run TestMatrix -args -plugins=reference
//
// Version 1.9.1 passes all cells of iptables. With nftables it can't promise that Services win, takes [::1] from the host, and
// lets pods of one bridge reach each other through the host only behind br_netfilter, with the client's own address.
//
// # Other kernels
//
// The test binary needs no Go tool, so that it can run in a guest as root, over the file system of the machine. There modules
// have to be loaded that nobody asks the kernel for by name (the others it loads with modprobe by itself):
//
//	modprobe -a veth bridge br_netfilter nf_tables nft_chain_nat sctp
//
//	go test -c -o /tmp/firewall.test ./test/firewall
//	cd test/firewall && CNIBOX_BIN_DIR=/path/to/bin FIREWALL_MATRIX=/tmp/matrix.md /tmp/firewall.test -test.parallel=2
//
// Many kernels made for virtual machines lack SCTP sockets: those cells are then n/a. Debian's 6.1 has them.
package firewall
