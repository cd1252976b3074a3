package hostdevice

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// note says which device a container has, and how it was on the host. It is a file of the host, since what the container's namespace shows
// is the container's own word. A value of "" or 0 is not known, or not there.
type note struct {
	plugin.Key
	path  string    // the file's
	since time.Time // when that was written
	netns string
	inode int // the namespace's

	number         int // which device it is: see sysfs
	name, alias    string
	altNames       string // with blanks between them, which no name has
	kind, parent   string // parent is the hardware, as its bus calls it
	mac            string
	mtu, xdp       int // xdp is the program's id
	flags          int // those of settable
	numbers        [len(numbers)]int
	offloads       string
	up             bool
	needs, needsIn int // the link that it goes with, such as the other end of a veth pair: its index and, unless -1, the namespace's number
}

// settable are the flags of a link that can be set, but for "up".
const settable = unix.IFF_NOARP | unix.IFF_PROMISC | unix.IFF_ALLMULTI | unix.IFF_MULTICAST

// numbers are attributes of a link that can be set and are numbers, with their names in the file. Of limits 0 is not known.
var numbers = [...]struct {
	name    string
	kind    uint16
	isLimit bool
}{
	{"queue", unix.IFLA_TXQLEN, false}, {"group", unix.IFLA_GROUP, false}, {"mode", unix.IFLA_LINKMODE, false},
	{"gsoSegments", unix.IFLA_GSO_MAX_SEGS, true}, {"gsoSize", unix.IFLA_GSO_MAX_SIZE, true}, {"groSize", unix.IFLA_GRO_MAX_SIZE, true},
	{"gsoSizeIPv4", unix.IFLA_GSO_IPV4_MAX_SIZE, true}, {"groSizeIPv4", unix.IFLA_GRO_IPV4_MAX_SIZE, true},
}

const notesDir = "host-device"

// pathOf returns the path of an attachment's note, "" where none can be written: DEL then finds the device as the reference plugin's.
func pathOf(k plugin.Key) string {
	return state.RunFile(fmt.Sprintf("%s/%x", notesDir, k.ID("host-device")))
}

// newNote describes a device of the calling thread's namespace for the request's container.
func newNote(r *plugin.Request, l netlink.Link) (*note, error) {
	a := l.Attrs()
	attributes, err := link.Attributes(a.Index)
	if err != nil {
		return nil, err
	}
	n := &note{
		Key: r.Key, path: pathOf(r.Key), netns: r.Netns, inode: inodeOf(r.NS()),
		number: numberOf(a.Name), name: a.Name, alias: a.Alias, altNames: strings.Join(a.AltNames, " "), kind: l.Type(), parent: a.ParentDev,
		mac: a.HardwareAddr.String(), mtu: a.MTU, xdp: programOf(l), flags: int(a.RawFlags & settable), offloads: offloadsOf(a.Name),
		up: a.RawFlags&unix.IFF_UP != 0, needs: a.ParentIndex, needsIn: a.NetNsID,
	}
	for i, number := range numbers {
		switch value := attributes[number.kind].Value; len(value) {
		case 1:
			n.numbers[i] = int(value[0])
		case 4:
			n.numbers[i] = int(nl.NativeEndian().Uint32(value))
		}
	}
	return n, nil
}

// inodeOf returns the inode of a namespace, which another one may have when it has ended.
func inodeOf(n ns.NetNS) int {
	var file unix.Stat_t
	_ = unix.Fstat(int(n.Fd()), &file) // it is open, so this can't fail
	return int(file.Ino)
}

// isOwn reports whether a namespace, if there is one, can be the one that the device was moved to.
func (n *note) isOwn(other ns.NetNS) bool { return other != nil && n.inode == inodeOf(other) }

// programOf returns the id of a link's XDP program, 0 if it has none.
func programOf(l netlink.Link) int {
	if l.Attrs().Xdp == nil {
		return 0
	}
	return int(l.Attrs().Xdp.ProgId)
}

// fields are what the file has besides the key.
func (n *note) fields() map[string]any {
	fields := map[string]any{
		"netns": &n.netns, "inode": &n.inode, "number": &n.number, "name": &n.name, "alias": &n.alias, "altnames": &n.altNames, "kind": &n.kind,
		"parent": &n.parent, "mac": &n.mac, "mtu": &n.mtu, "xdp": &n.xdp, "flags": &n.flags, "offloads": &n.offloads, "up": &n.up,
		"needs": &n.needs, "needsIn": &n.needsIn,
	}
	for i, number := range numbers {
		fields[number.name] = &n.numbers[i]
	}
	return fields
}

// record is the note as its file has it. Strings are quoted as in Go: the kernel allows any bytes in names, and JSON does not.
func (n *note) record() *conf.Object {
	o, fields := conf.New(), n.fields()
	n.Key.SetIn(o)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if text, ok := fields[key].(*string); ok {
			fields[key] = strconv.QuoteToASCII(*text)
		}
		o.Set(key, fields[key])
	}
	return o
}

func (n *note) write() error {
	if n.path == "" {
		return nil
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(n.path), 0o700), state.Remove(n.path)); err != nil {
		return err
	}
	return state.Create(n.path, n.record().JSON(), 0o600)
}

// claim takes the device from attachments that had it before, and whose DEL is still to come. A file that can't be read is no reason to fail.
func (n *note) claim() error {
	list, _ := notes()
	var errs []error
	for _, other := range list {
		if other.path != n.path && n.isOfSameDevice(other) {
			errs = append(errs, state.Remove(other.path))
		}
	}
	return errors.Join(errs...)
}

// isOfSameDevice reports whether two notes are of the same device. Where numbers are not known, they are if it had the same name.
func (n *note) isOfSameDevice(other *note) bool {
	return n.number == other.number && (n.number != 0 || n.name == other.name)
}

// noteOf returns the note of an attachment, nil if there is none.
func noteOf(k plugin.Key) (*note, error) {
	list, err := notesIn(pathOf(k))
	if at := slices.IndexFunc(list, func(n *note) bool { return n.Key == k }); at >= 0 {
		return list[at], nil
	}
	return nil, err
}

// notes returns those of all attachments.
func notes() (list []*note, err error) {
	dir := state.RunFile(notesDir)
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	for _, f := range files {
		own, err := notesIn(filepath.Join(dir, f.Name()))
		list, errs = append(list, own...), append(errs, err)
	}
	return list, errors.Join(errs...)
}

// notesIn returns the note in a file, none if there is no such file.
func notesIn(path string) (list []*note, err error) {
	file, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	records, err := state.ReadRecords(path)
	for _, o := range records {
		if n := readNote(o); n.name != "" {
			n.path, n.since = path, file.ModTime()
			list = append(list, n)
		}
	}
	return list, err
}

func readNote(o *conf.Object) *note {
	n := &note{Key: plugin.KeyIn(o)}
	for key, field := range n.fields() {
		switch to := field.(type) {
		case *string:
			o.String(key, to)
			if text, err := strconv.Unquote(*to); err == nil {
				*to = text
			}
		case *int:
			o.Int(key, to)
		case *bool:
			o.Bool(key, to)
		}
	}
	return n
}

// devices are what the notes say that attachments hold.
type devices struct{ *plugin.Request }

// Held lists the devices that containers have.
func (d devices) Held(context.Context, string) (all []plugin.Held, err error) {
	list, err := notes()
	for _, n := range list {
		all = append(all, plugin.Held{Key: n.Key, What: "device " + n.name, Since: n.since, Own: n})
	}
	return all, err
}

// Release gives devices back to the host.
func (d devices) Release(_ context.Context, all []plugin.Held) error {
	var errs []error
	for _, h := range all {
		errs = append(errs, h.Own.(*note).giveBack(d.Request))
	}
	return errors.Join(errs...)
}
