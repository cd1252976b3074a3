package lease

import (
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// hint is the file that tells the address handed out last from a pool, behind
// which the next search starts. It is opened once to be read and written.
type hint struct {
	directory directory
	name      string
	fd        int        // -1 when there is no file that can be used yet
	size      int        // bytes in it
	address   netip.Addr // the zero Addr if that is not known
}

func (d directory) openHint(pool int) *hint {
	h := &hint{directory: d, name: "last_reserved_ip." + strconv.Itoa(pool)}
	if h.open(0) != nil {
		h.fd = -1
		return h
	}
	var buffer [maxContent]byte
	n, err := unix.Read(h.fd, buffer[:])
	if err != nil {
		return h
	}
	h.size = n
	if a, err := netip.ParseAddr(string(buffer[:n])); err == nil {
		h.address = a
	}
	return h
}

func (h *hint) open(flags int) (err error) {
	h.fd, err = unix.Openat(h.directory.fd, h.name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0o600)
	return err
}

// set writes over the old text and cuts what is left of it. (A file that is
// truncated first is written to disk by ext4 as soon as it is closed: 135 us
// instead of 3.) A process killed in between leaves a wrong address, with which
// a search only starts elsewhere.
func (h *hint) set(a netip.Addr) error {
	if h.fd < 0 {
		if err := h.open(unix.O_CREAT); err != nil {
			return h.directory.wrap("open", h.name, err)
		}
	}
	text := []byte(a.String())
	if n, err := unix.Pwrite(h.fd, text, 0); err != nil || n < len(text) {
		return h.directory.wrap("write", h.name, cmpErr(err, unix.EIO))
	}
	cut := h.size > len(text)
	h.size = len(text)
	if !cut {
		return nil
	}
	return h.directory.wrap("truncate", h.name, unix.Ftruncate(h.fd, int64(len(text))))
}

func (h *hint) close() {
	if h.fd >= 0 {
		_ = unix.Close(h.fd)
	}
}
