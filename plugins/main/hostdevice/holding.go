package hostdevice

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

// holding is a device that a container has, and how it was on the host. It is kept in a file of the host, since what the container's
// namespace shows is the container's own word.
type holding struct {
	plugin.Key
	netns string

	name, alias  string
	kind, parent string // parent is the hardware, as its bus calls it
	mac          string // "" is not known
	mtu          int    // 0 is not known
	up           bool
}

const holdingsDir = "/run/cnibox/host-device"

func pathOf(k plugin.Key) string {
	return filepath.Join(holdingsDir, fmt.Sprintf("%x", k.ID("host-device")))
}

// newHolding describes a device of the host for the request's container.
func newHolding(r *plugin.Request, l netlink.Link) holding {
	a := l.Attrs()
	return holding{
		Key: r.Key, netns: r.Netns, name: a.Name, alias: a.Alias, kind: l.Type(), parent: a.ParentDev, mac: a.HardwareAddr.String(), mtu: a.MTU,
		up: a.RawFlags&unix.IFF_UP != 0,
	}
}

func (h holding) write() error {
	if err := errors.Join(os.MkdirAll(holdingsDir, 0o700), h.remove()); err != nil {
		return err
	}
	return state.Create(pathOf(h.Key), h.text(), 0o600)
}

// field is a text in the file.
type field struct {
	key   string
	value *string
}

func (h *holding) fields() []field {
	return []field{
		{"network", &h.Network}, {"containerID", &h.ContainerID}, {"ifname", &h.IfName}, {"netns", &h.netns},
		{"name", &h.name}, {"alias", &h.alias}, {"kind", &h.kind}, {"parent", &h.parent}, {"mac", &h.mac},
	}
}

// text returns the file's text: a line for each field, quoted as in Go, as the kernel allows any bytes in names.
func (h holding) text() []byte {
	var text []byte
	for _, f := range h.fields() {
		text = fmt.Appendf(text, "%s %q\n", f.key, *f.value)
	}
	return fmt.Appendf(text, "mtu %d\nup %t\n", h.mtu, h.up)
}

func (h holding) remove() error {
	if err := os.Remove(pathOf(h.Key)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// claim takes the device from attachments that had it before, and whose DEL is still to come.
func (h holding) claim() error {
	list, err := holdings()
	errs := []error{err}
	for _, other := range list {
		if other.name == h.name && other.Key != h.Key {
			errs = append(errs, other.remove())
		}
	}
	return errors.Join(errs...)
}

// holdings returns what containers have. A file that can't be read is left out.
func holdings() (list []holding, err error) {
	files, err := os.ReadDir(holdingsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, f := range files {
		text, failed := os.ReadFile(filepath.Join(holdingsDir, f.Name()))
		if h, ok := parseHolding(text); ok && failed == nil {
			list = append(list, h)
		}
	}
	return list, err
}

// holdingOf returns what an attachment has, nil if nothing is known of it.
func holdingOf(k plugin.Key) (*holding, error) {
	text, err := os.ReadFile(pathOf(k))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if h, ok := parseHolding(text); ok && h.Key == k {
		return &h, err
	}
	return nil, err
}

// parseHolding reads a file's text.
func parseHolding(text []byte) (h holding, ok bool) {
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		values[key] = value
	}
	for _, f := range h.fields() {
		*f.value, _ = strconv.Unquote(values[f.key])
	}
	h.mtu, _ = strconv.Atoi(values["mtu"])
	h.up = values["up"] == "true"
	return h, link.IsName(h.name)
}
