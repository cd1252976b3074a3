package watch

import (
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func FuzzLinks(f *testing.F) {
	for _, r := range read(f, "links.txt") {
		f.Add(r.bytes, hostNumber)
		f.Add(r.bytes, 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, nsid int) {
		burst := newBurst()
		for m := range messages(b) {
			e := parseLink(m, nsid)
			if nsid != hostNumber && (e.change == forwarding || e.change == ended || e.carries && e.kind != "vrf") {
				t.Errorf("namespace %d tells of the host's: %+v", nsid, e)
			}
			burst.addEvent(e, "")
		}
		for p, l := range burst.losses {
			if text := l.hit(p, "eth0").What; strings.ContainsFunc(text, func(c rune) bool { return c < ' ' }) {
				t.Errorf("%q can't be printed", text)
			}
		}
	})
}

func FuzzNFTables(f *testing.F) {
	for _, r := range read(f, "nftables.txt") {
		f.Add(r.bytes)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w := &Watch{burst: newBurst(), news: make(chan struct{}, 1)}
		tr := newTransaction(w)
		for m := range messages(b) {
			tr.read(m)
		}
		for _, h := range w.burst.hits(nil) {
			if h.Kind != Filter || strings.ContainsFunc(h.What+h.By, func(c rune) bool { return c < ' ' }) {
				t.Errorf("%+v", h)
			}
		}
	})
}

func FuzzNamespaceOf(f *testing.F) {
	b := binary.NativeEndian.AppendUint64(nil, uint64(unix.CmsgLen(4)))
	b = binary.NativeEndian.AppendUint32(b, unix.SOL_NETLINK)
	b = binary.NativeEndian.AppendUint32(b, unix.NETLINK_LISTEN_ALL_NSID)
	f.Add(append(b, 5, 0, 0, 0, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) { namespaceOf(b) })
}
