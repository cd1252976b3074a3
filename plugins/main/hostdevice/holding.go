package hostdevice

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// holding is a device that a container has, and how it was on the host. It is kept in a file of the host, since what the container's
// namespace shows is the container's own word. What is "" or 0 is not known, or not there.
type holding struct {
	plugin.Key
	netns string
	inode int // the namespace's

	number         int // which device it is: see sysfs
	name, alias    string
	altNames       string // with blanks between them, which no name has
	kind, parent   string // parent is the hardware, as its bus calls it
	mac            string
	mtu, xdp       int // xdp is the program's id
	flags          int // those of settable
	queue, group   int // queue is its length
	up             bool
	needs, needsIn int // the link that it goes with, such as the other end of a veth pair: its index and, unless -1, the namespace's number
}

// settable are the flags of a link that can be set, but for "up".
const settable = unix.IFF_NOARP | unix.IFF_PROMISC | unix.IFF_ALLMULTI | unix.IFF_MULTICAST

const holdingsDir = "/run/cnibox/host-device"

func pathOf(k plugin.Key) string {
	return filepath.Join(holdingsDir, fmt.Sprintf("%x", k.ID("host-device")))
}

// newHolding describes a device of the host for the request's container.
func newHolding(r *plugin.Request, l netlink.Link) *holding {
	a := l.Attrs()
	fs, _ := openSysfs() // without it the number is not known
	defer fs.Close()
	return &holding{
		Key: r.Key, netns: r.Netns, inode: inodeOf(r.NS()), number: fs.number(a.Name),
		name: a.Name, alias: a.Alias, altNames: strings.Join(a.AltNames, " "), kind: l.Type(), parent: a.ParentDev,
		mac: a.HardwareAddr.String(), mtu: a.MTU, xdp: programOf(a), flags: int(a.RawFlags & settable),
		queue: a.TxQLen, group: int(a.Group), up: a.RawFlags&unix.IFF_UP != 0, needs: a.ParentIndex, needsIn: a.NetNsID,
	}
}

// inodeOf returns the inode of a namespace, which another one may have when it has ended.
func inodeOf(n ns.NetNS) int {
	var file unix.Stat_t
	_ = unix.Fstat(int(n.Fd()), &file) // it is open, so this can't fail
	return int(file.Ino)
}

// programOf returns the id of a link's XDP program, 0 if it has none.
func programOf(a *netlink.LinkAttrs) int {
	if a.Xdp == nil || !a.Xdp.Attached {
		return 0
	}
	return int(a.Xdp.ProgId)
}

func (h *holding) write() error {
	if err := errors.Join(os.MkdirAll(holdingsDir, 0o700), h.remove()); err != nil {
		return err
	}
	return state.Create(pathOf(h.Key), h.text(), 0o600)
}

// field is a value in the file: a string, an int or a bool.
type field struct {
	key   string
	value any
}

func (h *holding) fields() []field {
	return []field{
		{"network", &h.Network}, {"containerID", &h.ContainerID}, {"ifname", &h.IfName}, {"netns", &h.netns}, {"inode", &h.inode},
		{"number", &h.number}, {"name", &h.name}, {"alias", &h.alias}, {"altnames", &h.altNames}, {"kind", &h.kind}, {"parent", &h.parent},
		{"mac", &h.mac}, {"mtu", &h.mtu}, {"xdp", &h.xdp}, {"flags", &h.flags}, {"queue", &h.queue}, {"group", &h.group}, {"up", &h.up}, {"needs", &h.needs}, {"needsIn", &h.needsIn},
	}
}

// text returns the file's text: a line for each field, strings quoted as in Go, as the kernel allows any bytes in names.
func (h *holding) text() []byte {
	var text []byte
	for _, f := range h.fields() {
		switch value := f.value.(type) {
		case *string:
			text = fmt.Appendf(text, "%s %q\n", f.key, *value)
		case *int:
			text = fmt.Appendf(text, "%s %d\n", f.key, *value)
		case *bool:
			text = fmt.Appendf(text, "%s %t\n", f.key, *value)
		}
	}
	return text
}

func (h *holding) remove() error {
	if err := os.Remove(pathOf(h.Key)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// claim takes the device from attachments that had it before, and whose DEL is still to come.
func (h *holding) claim() error {
	list, err := holdings()
	errs := []error{err}
	for _, other := range list {
		if other.Key != h.Key && h.isOf(other) {
			errs = append(errs, other.remove())
		}
	}
	return errors.Join(errs...)
}

// isOf reports whether two holdings are of the same device. If that is not known, they are if it had the same name.
func (h *holding) isOf(other *holding) bool {
	if h.number != 0 && other.number != 0 {
		return h.number == other.number
	}
	return h.name == other.name
}

// holdings returns what containers have. A file that can't be read is left out.
func holdings() (list []*holding, err error) {
	files, err := os.ReadDir(holdingsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, f := range files {
		text, failed := state.Read(filepath.Join(holdingsDir, f.Name()))
		if h, ok := parseHolding(text); ok && failed == nil {
			list = append(list, h)
		}
	}
	return list, err
}

// holdingOf returns what an attachment has, nil if nothing is known of it.
func holdingOf(k plugin.Key) (*holding, error) {
	text, err := state.Read(pathOf(k))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if h, ok := parseHolding(text); ok && h.Key == k {
		return h, err
	}
	return nil, err
}

// parseHolding reads a file's text.
func parseHolding(text []byte) (h *holding, ok bool) {
	h = &holding{}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		values[key] = value
	}
	for _, f := range h.fields() {
		switch value := f.value.(type) {
		case *string:
			*value, _ = strconv.Unquote(values[f.key])
		case *int:
			*value, _ = strconv.Atoi(values[f.key])
		case *bool:
			*value = values[f.key] == "true"
		}
	}
	return h, link.ValidateName(h.name) == nil
}
