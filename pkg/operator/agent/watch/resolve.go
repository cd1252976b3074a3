package watch

import (
	"encoding/binary"
	"errors"

	"github.com/mdlayher/netlink"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// links answers what has become of links.
type links struct {
	conn *netlink.Conn
	own  int // the number that our own namespace has for itself, hostNumber for none
}

// link is what is asked of one.
type link struct {
	name string
	up   bool
}

// openLinks opens it in the network namespace of the calling thread.
func openLinks() (*links, error) {
	own, err := ownNumber()
	if err != nil {
		return nil, err
	}
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	return &links{conn, own}, err
}

func (l *links) close() { _ = l.conn.Close() }

// ownNumber returns the number that our namespace has for itself: somebody may have given it one.
func ownNumber() (int, error) {
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return vnl.GetNetNsIdByFd(fd)
}

// ask looks a link up. One of which nothing can be found out is taken to be there.
func (l *links) ask(p linkID) (found link, there bool) {
	if p.index <= 0 {
		return link{}, true
	}
	const skipStats = 8 // RTEXT_FILTER_SKIP_STATS
	header := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(header[4:], uint32(p.index))
	e := netlink.NewAttributeEncoder()
	e.Uint32(unix.IFLA_EXT_MASK, skipStats)
	if p.nsid != hostNumber {
		e.Int32(unix.IFLA_TARGET_NETNSID, int32(p.nsid))
	}
	attrs, _ := e.Encode() // refuses lengths of 64 KiB only
	answers, err := l.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request},
		Data:   append(header, attrs...),
	})
	switch {
	case errors.Is(err, unix.ENODEV), p.nsid != hostNumber && errors.Is(err, unix.EINVAL): // nor is its namespace there
		return link{}, false
	case err != nil || len(answers) == 0 || len(answers[0].Data) < unix.SizeofIfInfomsg:
		return link{}, true
	}
	data := answers[0].Data
	return link{text(attribute(data, unix.SizeofIfInfomsg, unix.IFLA_IFNAME)), uint32(number(data[8:]))&unix.IFF_UP != 0}, true
}
