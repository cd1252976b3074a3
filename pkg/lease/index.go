package lease

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// index answers "which addresses does this attachment hold" in a few reads,
// where the lease files alone take one open for each lease of the network (3 us
// each, 0.15 s for 50,000).
//
// It is a hash table in the file <dataDir>/.cnibox/<network>, used only under
// the network's lock. Nothing depends on it:
//
//   - It is trusted only while the directory of the leases has the modification
//     time that we gave it after our own last change. That time is a day in the
//     past, so that no change by someone else (the reference plugin, podman, rm)
//     leaves it standing; nor does one of ours that was cut short by a kill.
//   - It is trusted only in the boot it was written in, so a power failure can't
//     leave it half written.
//   - What it says an attachment holds is verified by reading the lease file.
//
// What is not trusted is built anew from the lease files. A reserved address is
// never taken from it: the lease files themselves exclude each other. What it
// can't notice is a lease file edited in place, or made without the lock in the
// microseconds of a call of ours.
type index struct {
	fd     int
	header header
	here   header // of the directory and the boot as they are, once read
}

// The file is a header and a power of two of slots, little endian. A slot is
// the hash of the attachment, which is 0 for a slot never used and 1 for one
// that was, and the address in its 16 byte form.
const (
	headerSize = 96
	slotSize   = 24
	chunk      = 32 // slots read at a time
	fewest     = 1024
)

const (
	empty   uint64 = 0
	deleted uint64 = 1
)

const magic = "cnibox leases 1\n"

// header says what the index is the index of.
type header struct {
	boot     string // the kernel's boot id
	dev, ino uint64 // of the leases' directory
	stamp    int64  // its modification time, ns since 1970
	slots    uint64
	used     uint64 // slots that are not empty
}

// errIndex says that the index contradicts itself or the lease files.
var errIndex = errors.New("the index of the leases is damaged")

// hashOf returns the hash an attachment has in the index of a network.
func hashOf(network string, owner plugin.Attachment) uint64 {
	id := plugin.Key{Network: network, ContainerID: owner.ContainerID, IfName: owner.IfName}.ID("lease")
	return max(binary.BigEndian.Uint64(id[8:]), deleted+1)
}

// openIndex opens the file, whatever is in it; if create is set, it and its
// directory are made when missing. It returns nil when there is no index: the
// leases can be had without.
func openIndex(path string, create bool) *index {
	const flags = unix.O_RDWR | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK
	fd, err := unix.Open(path, flags, 0)
	if err == unix.ENOENT && create {
		_ = os.Mkdir(filepath.Dir(path), 0o700)
		fd, err = unix.Open(path, flags|unix.O_CREAT, 0o600)
	}
	if err != nil {
		return nil
	}
	return &index{fd: fd}
}

func (x *index) close() {
	if x != nil {
		_ = unix.Close(x.fd)
	}
}

// trusted reads the header and tells whether the index can be trusted for the
// directory.
func (x *index) trusted(d directory) bool {
	var b [headerSize]byte
	if !x.readAt(b[:], 0) || string(b[:16]) != magic {
		return false
	}
	want, err := x.describe(d)
	if err != nil {
		return false
	}
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(b[56+8*i:]) }
	x.header = header{boot: string(b[16:52]), dev: number(0), ino: number(1), stamp: int64(number(2)), slots: number(3), used: number(4)}
	want.slots, want.used = x.header.slots, x.header.used
	return x.header == want && want.slots >= fewest && want.slots&(want.slots-1) == 0 && want.used <= want.slots
}

// describe returns the header of an index of d as the session found it, without
// sizes. It looks once: the boot id takes 10 us.
func (x *index) describe(d directory) (header, error) {
	if x.here.boot != "" {
		return x.here, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return header{}, err
	}
	boot, err := bootID()
	x.here = header{boot: boot, dev: uint64(st.Dev), ino: st.Ino, stamp: st.Mtim.Nano()}
	return x.here, err
}

func bootID() (string, error) {
	const path = "/proc/sys/kernel/random/boot_id"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var b [36]byte
	if n, err := unix.Read(fd, b[:]); n != len(b) {
		return "", cmpErr(err, unix.EIO)
	}
	return string(b[:]), nil
}

// seal makes the index trusted: it gives the directory a modification time and
// notes it.
func (x *index) seal(d directory) error {
	h, err := x.describe(d)
	if err != nil {
		return err
	}
	h.stamp = time.Now().Add(-24 * time.Hour).UnixNano()
	h.slots, h.used = x.header.slots, x.header.used
	if err := x.writeHeader(h); err != nil {
		return err
	}
	keep := unix.Timespec{Nsec: unix.UTIME_OMIT}
	return unix.UtimesNanoAt(d.fd, ".", []unix.Timespec{keep, unix.NsecToTimespec(h.stamp)}, 0)
}

func (x *index) writeHeader(h header) error {
	var b [headerSize]byte
	copy(b[:16], magic)
	copy(b[16:56], h.boot)
	for i, n := range []uint64{h.dev, h.ino, uint64(h.stamp), h.slots, h.used} {
		binary.LittleEndian.PutUint64(b[56+8*i:], n)
	}
	return x.writeAt(b[:], 0)
}

// slot is one entry: the attachment with that hash holds the address.
type slot struct {
	hash    uint64
	address netip.Addr
}

func (s slot) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, s.hash)
	if s.address.IsValid() {
		a := s.address.As16()
		copy(b[8:], a[:])
	}
}

func decodeSlot(b []byte) slot {
	return slot{binary.LittleEndian.Uint64(b), netip.AddrFrom16([16]byte(b[8:slotSize])).Unmap()}
}

// build writes the index anew, with room to grow.
func (x *index) build(entries []slot) error {
	n := uint64(fewest)
	for n < 2*uint64(len(entries)) {
		n *= 2
	}
	table := make([]byte, n*slotSize)
	for _, e := range entries {
		i := e.hash & (n - 1)
		for binary.LittleEndian.Uint64(table[i*slotSize:]) != empty {
			i = (i + 1) & (n - 1)
		}
		e.encode(table[i*slotSize:])
	}
	if err := x.writeAt(make([]byte, headerSize), 0); err != nil { // not trusted while half written
		return err
	}
	x.header = header{slots: n, used: uint64(len(entries))}
	if err := x.writeAt(table, headerSize); err != nil {
		return err
	}
	return unix.Ftruncate(x.fd, int64(headerSize+len(table)))
}

// find returns the addresses of the attachments with that hash.
func (x *index) find(hash uint64) (addresses []netip.Addr, err error) {
	err = x.probe(hash, func(_ uint64, s slot) bool {
		if s.hash == hash {
			addresses = append(addresses, s.address)
		}
		return s.hash == empty
	})
	return addresses, err
}

// add notes that the attachment holds the address.
func (x *index) add(s slot) error {
	if 4*(x.header.used+1) > 3*x.header.slots {
		return x.grow(s)
	}
	var at uint64
	fresh := false
	err := x.probe(s.hash, func(i uint64, old slot) bool {
		at, fresh = i, old.hash == empty
		return old.hash <= deleted
	})
	if err != nil {
		return err
	}
	if fresh {
		x.header.used++
	}
	return x.set(at, s)
}

// remove forgets it again.
func (x *index) remove(s slot) error {
	var at uint64
	found := false
	err := x.probe(s.hash, func(i uint64, old slot) bool {
		if old == s {
			at, found = i, true
		}
		return found || old.hash == empty
	})
	if err != nil || !found {
		return cmpErr(err, errIndex)
	}
	return x.set(at, slot{hash: deleted})
}

// grow builds the table anew, without its deleted slots and with one more
// entry.
func (x *index) grow(s slot) error {
	table := make([]byte, x.header.slots*slotSize)
	if !x.readAt(table, headerSize) {
		return errIndex
	}
	entries := []slot{s}
	for ; len(table) > 0; table = table[slotSize:] {
		if e := decodeSlot(table); e.hash > deleted {
			entries = append(entries, e)
		}
	}
	return x.build(entries)
}

// probe visits the slots a hash can be in, in order, until visit returns true.
func (x *index) probe(hash uint64, visit func(i uint64, s slot) (stop bool)) error {
	n := x.header.slots
	var b [chunk * slotSize]byte
	for seen, i := uint64(0), hash&(n-1); seen < n; {
		count := min(chunk, n-i)
		window := b[:count*slotSize]
		if !x.readAt(window, headerSize+int64(i*slotSize)) {
			return errIndex
		}
		for k := range count {
			if visit(i+k, decodeSlot(window[k*slotSize:])) {
				return nil
			}
		}
		seen += count
		i = (i + count) & (n - 1)
	}
	return errIndex // a table has empty slots
}

func (x *index) set(i uint64, s slot) error {
	var b [slotSize]byte
	s.encode(b[:])
	return x.writeAt(b[:], headerSize+int64(i*slotSize))
}

func (x *index) readAt(b []byte, offset int64) bool {
	n, err := unix.Pread(x.fd, b, offset)
	return err == nil && n == len(b)
}

func (x *index) writeAt(b []byte, offset int64) error {
	n, err := unix.Pwrite(x.fd, b, offset)
	if err != nil || n < len(b) {
		return cmpErr(err, unix.EIO)
	}
	return nil
}
