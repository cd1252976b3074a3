package link

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netlink"
)

// appendForget makes a link forget what hardware address an address was last
// seen at. That it knows none is no failure.
func appendForget(b *netlink.Batch, index int, a netip.Addr) {
	header := []byte{familyOf(a), 0, 0, 0} // struct ndmsg, rtnetlink(7)
	header = binary.NativeEndian.AppendUint32(header, uint32(index))
	header = append(header, 0, 0, 0, 0)
	b.Begin(unix.RTM_DELNEIGH, 0, "forget neighbour "+a.String()+" of "+nameOf(index))
	b.Header(header...)
	b.Addr(unix.NDA_DST, a)
	b.End()
	b.Expect(unix.ENOENT)
}
