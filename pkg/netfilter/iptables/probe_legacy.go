package iptables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// legacyProbe looks into the tables of iptables-legacy, which the kernel hands
// out as a whole. It keeps what it has read.
type legacyProbe struct {
	read []*legacyTable
}

// legacyTable is a table as the kernel has it: entries one behind the other.
type legacyTable struct {
	family  family
	name    string
	entries []byte // none if the namespace does not have the table
	chains  []string
}

func (t *legacyTable) isThere() bool { return len(t.entries) > 0 }

func (p *legacyProbe) hasChain(f family, table, chain string) (bool, error) {
	t, err := p.table(f, table)
	return err == nil && slices.Contains(t.chains, chain), err
}

func (p *legacyProbe) chains(f family, table string) ([]string, error) {
	t, err := p.table(f, table)
	if err != nil {
		return nil, err
	}
	return t.chains, nil
}

// mentions tells whether an address is anywhere in the table.
func (p *legacyProbe) mentions(f family, table, _ string, addr netip.Addr) (bool, error) {
	t, err := p.table(f, table)
	return err == nil && bytes.Contains(t.entries, addr.AsSlice()), err
}

func (p *legacyProbe) table(f family, name string) (*legacyTable, error) {
	for _, t := range p.read {
		if t.family == f && t.name == name {
			return t, nil
		}
	}
	entries, err := readTable(f, name)
	if err != nil {
		return nil, fmt.Errorf("read table %s of iptables-legacy (%s): %w", name, f, err)
	}
	t := &legacyTable{family: f, name: name, entries: entries, chains: chainsOf(f, entries)}
	p.read = append(p.read, t)
	return t, nil
}

// readTable returns the entries of a table if it is there. To ask for one that is
// not would create it.
func readTable(f family, name string) ([]byte, error) {
	if there, err := hasTable(f, name); err != nil || !there {
		return nil, err
	}
	domain, level := unix.AF_INET, unix.SOL_IP
	if f == ipv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readEntries(fd, level, name)
}

// hasTable looks the table up in the list of those that the namespace has.
func hasTable(f family, name string) (bool, error) {
	file := "/proc/thread-self/net/ip_tables_names"
	if f == ipv6 {
		file = "/proc/thread-self/net/ip6_tables_names"
	}
	list, err := readSmall(file)
	if errors.Is(err, unix.ENOENT) {
		return false, nil // no iptables-legacy in this kernel, or not loaded
	}
	return slices.Contains(strings.Fields(list), name), err
}

// readSmall reads a file of at most 512 bytes, which five names of tables are
// not. Every DEL does this: a file of package os would cost twice the time.
func readSmall(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var buffer [512]byte
	n, err := unix.Read(fd, buffer[:])
	return string(buffer[:max(n, 0)]), err
}

// The options of sockets that read a table (linux/netfilter_ipv4/ip_tables.h;
// those of ip6_tables.h are the same).
const (
	getInfo    = 64
	getEntries = 65
)

// tableInfo is struct ipt_getinfo.
type tableInfo struct {
	name                 [32]byte
	hooks                uint32
	hookEntry, underflow [5]uint32
	numEntries, size     uint32
}

// entriesOffset is where the entries begin in struct ipt_get_entries: behind the
// name and a size, where a 64-bit number may be.
const entriesOffset = (unsafe.Sizeof(tableInfo{}.name) + 4 + unsafe.Alignof(uint64(0)) - 1) &^ (unsafe.Alignof(uint64(0)) - 1)

// changes is how often a table may change its size between two calls.
const changes = 16

func readEntries(fd, level int, table string) ([]byte, error) {
	for range changes {
		var info tableInfo
		copy(info.name[:], table)
		if err := getsockopt(fd, level, getInfo, unsafe.Pointer(&info), unsafe.Sizeof(info)); err != nil {
			return nil, err
		}
		buffer := make([]byte, entriesOffset+uintptr(info.size))
		copy(buffer, table)
		binary.NativeEndian.PutUint32(buffer[len(info.name):], info.size)
		err := getsockopt(fd, level, getEntries, unsafe.Pointer(&buffer[0]), uintptr(len(buffer)))
		if !errors.Is(err, unix.EAGAIN) {
			return buffer[entriesOffset:], err
		}
	}
	return nil, unix.EAGAIN
}

func getsockopt(fd, level, option int, value unsafe.Pointer, size uintptr) error {
	length := uint32(size)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(value), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// chainsOf lists the chains that are not the kernel's own. Each begins with an
// entry whose target is called ERROR, with the chain's name behind that
// (struct xt_error_target).
func chainsOf(f family, entries []byte) []string {
	// Behind struct ipt_ip or ip6t_ip6 and 4 bytes: where the target is and
	// where the next entry is, 2 bytes each.
	offsets := 84 + 4
	if f == ipv6 {
		offsets = 136 + 4
	}
	const targetName, nameSize = 2, 29
	const errorName = targetName + nameSize + 1
	var names []string
	for len(entries) >= offsets+4 {
		target := int(binary.NativeEndian.Uint16(entries[offsets:]))
		next := int(binary.NativeEndian.Uint16(entries[offsets+2:]))
		if next <= 0 || next > len(entries) {
			break
		}
		if target+errorName < next && unix.ByteSliceToString(entries[target+targetName:target+targetName+nameSize]) == "ERROR" {
			names = append(names, unix.ByteSliceToString(entries[target+errorName:next]))
		}
		entries = entries[next:]
	}
	return names
}
