package watch

import (
	"time"

	"github.com/mdlayher/socket"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
)

// lookEvery is how often the size of iptables-legacy's tables is looked at.
const lookEvery = 2 * time.Second

// sizes are how large tables were.
type sizes map[iptables.Legacy]size

// size is a table's.
type size struct {
	entries int
	others  int // without those that attachments hold for themselves
}

// watchLegacy looks at the tables of iptables-legacy, of whose changes the kernel tells nobody. It asks for one number for each table.
func (w *Watch) watchLegacy() error {
	s := sizes{}
	s.look()
	go func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				for _, what := range s.look() {
					w.hit(what, "")
				}
			case <-w.life.Done():
				return
			}
		}
	}()
	return nil
}

// look returns what has become smaller since the last time by more than attachments have taken back.
func (s sizes) look() (hits []string) {
	there := map[iptables.Legacy]bool{}
	for _, table := range iptables.LegacyTables() { // to ask for another one would make it
		entries, err := countEntries(table)
		if err != nil {
			continue
		}
		there[table] = true
		before, known := s[table]
		if known && entries == before.entries {
			continue
		}
		owned, err := table.Owned()
		if err != nil {
			continue
		}
		now := size{entries, entries - owned}
		if known && now.lacks(before) {
			hits = append(hits, "rules were deleted from table "+table.String())
		}
		s[table] = now
	}
	for table := range s {
		if !there[table] {
			delete(s, table)
			hits = append(hits, "table "+table.String()+" is gone")
		}
	}
	return hits
}

// lacks reports whether something is gone that no DEL has removed. Entries that a DEL removes are counted out; an ADD that has just noted
// what it is about to make may look like it, which costs a look for nothing.
func (s size) lacks(before size) bool { return s.others < before.others }

// countEntries asks for the number of entries of a table, which are its rules and two for each of its chains.
func countEntries(t iptables.Legacy) (int, error) {
	family, level := unix.AF_INET, unix.IPPROTO_IP
	if t.IPv6 {
		family, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	conn, err := socket.Socket(family, unix.SOCK_DGRAM, 0, "iptables", nil)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	const getInfo = 64 // IPT_SO_GET_INFO and IP6T_SO_GET_INFO
	// struct ipt_getinfo: name, hooks, their entries and ends, number of entries, bytes
	const length, countAt = 84, 76
	info := make([]byte, length)
	copy(info[:31], t.Name)
	_, err = conn.GetsockoptBytes(level, getInfo, info)
	return int(number(info[countAt:])), err
}
