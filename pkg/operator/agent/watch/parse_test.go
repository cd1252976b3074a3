package watch

import (
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// recorded is what the kernel told a socket when somebody ran a command, and what that is to be read as.
type recorded struct {
	command string
	bytes   []byte
	want    string
}

// read returns what is in a file of testdata, which were recorded on a little-endian machine. One command can have several.
func read(t testing.TB, file string) (list []recorded) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		b, err := hex.DecodeString(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, recorded{fields[0], b, strings.Join(fields[2:], "")})
	}
	return list
}

func TestLinks(t *testing.T) {
	filter, err := bpf.NewVM(linkFilter(77))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range read(t, "links.txt") {
		got := ""
		if passed, err := filter.Run(r.bytes); err != nil {
			t.Fatal(err)
		} else if passed > 0 {
			for m := range messages(r.bytes) {
				got += describeEvent(parseLink(m, hostNumber)) + describeEvent(parseLink(m, 5))
			}
		}
		if got != r.want {
			t.Errorf("%s\n%x\nis %q\nnot %q", r.command, r.bytes, got, r.want)
		}
	}
}

func describeEvent(e event) string {
	text := map[change]string{lost: "lost " + e.what, down: "down", unplugged: "unplugged from a bridge", gone: "gone " + e.kind, ended: "ended",
		forwarding: "forwarding " + e.what}[e.change]
	if text == "" {
		return ""
	}
	if e.change == unplugged && e.master == 0 {
		text += " without index"
	}
	if e.carries {
		text += " with others"
	}
	if e.by != 0 {
		text += " by somebody"
	}
	if e.index == 0 {
		text += " without link"
	}
	return fmt.Sprintf("[%d: %s]", e.nsid, text)
}

// transactions returns the hits that are made of recorded changes of nf_tables.
func transactions(t testing.TB, ours plugin.Table, commands ...string) (hits []Hit) {
	w := &Watch{burst: newBurst(), news: make(chan struct{}, 1), programs: programs{table: ours}}
	tr, list := newTransaction(w), read(t, "nftables.txt")
	for _, command := range commands {
		known := false
		for _, r := range list {
			if r.command == command {
				known = true
				for m := range messages(r.bytes) {
					tr.read(m)
				}
			}
		}
		if !known {
			t.Errorf("nothing was recorded of %q", command)
		}
	}
	return w.burst.hits(nil)
}

const (
	addJump      = "iptables-nft -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT"
	addContainer = "iptables-nft -t nat -A CNI-0123456789abcdef01234567 -d 10.1.0.0/16 -j ACCEPT"
	flushNAT     = "iptables-nft -t nat -F"
	natRules     = "rules of iptables were deleted from table ip nat"
	delAttached  = `printf '*nat\n-D POSTROUTING -s 10.1.0.2/32 -m comment --comment demo -j CNI-0123456789abcdef01234567\n` +
		`-F CNI-0123456789abcdef01234567\n-X CNI-0123456789abcdef01234567\nCOMMIT\n' | iptables-nft-restore --noflush`
)

func TestNFTables(t *testing.T) {
	for _, test := range []struct {
		name     string
		commands []string
		want     []string
	}{
		{"elements are added", []string{`nft add element inet cnibox ports4_v1 "{ 80, 81 }"`}, nil},
		{"an element", []string{`nft delete element inet cnibox ports4_v1 "{ 80 }"`}, []string{"elements of set ports4_v1 of table inet cnibox were deleted by nft"}},
		{"rules", []string{"nft flush chain inet cnibox dnat_v1"}, []string{"rules of chain dnat_v1 of table inet cnibox were deleted by nft"}},
		{"a table", []string{"nft delete table inet cnibox"}, []string{"table inet cnibox was deleted by nft"}},
		{"the reference plugins' table", []string{"nft flush ruleset"}, []string{"table ip cni_hostport was deleted by nft"}},
		{"rules are added", []string{addJump, addContainer}, nil},
		{"an attachment is removed", []string{delAttached}, nil},
		{"a rule of somebody else", []string{"iptables-nft -t nat -D OUTPUT 1"}, nil},
		{"a table of iptables is flushed", []string{flushNAT}, []string{natRules + " by iptables-nft"}},
		{"it is flushed and made again", []string{flushNAT, addJump}, nil},
		{"it is replaced", []string{`printf '*nat\nCOMMIT\n' | iptables-nft-restore`}, []string{natRules + " by iptables-nft-re"}},
		{"it is replaced by others", []string{`printf '*nat\nCOMMIT\n' | iptables-nft-restore`, addJump}, []string{natRules + " by iptables-nft-re"}},
		{"the guard", []string{"iptables-nft -t raw -F"}, []string{"rules of iptables were deleted from table ip raw by iptables-nft"}},
		{"rules for an address", []string{"iptables-nft -D CNI-FORWARD -s 10.1.0.2 -j ACCEPT"}, nil},
		{"the jump to them", []string{"iptables-nft -D FORWARD -j CNI-FORWARD"}, []string{"rules of iptables were deleted from table ip filter by iptables-nft"}},
	} {
		var got []string
		for _, h := range transactions(t, nil, test.commands...) {
			by, _, _ := strings.Cut(h.By, " (pid ")
			got = append(got, h.What+" by "+by)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, not %q", test.name, got, test.want)
		}
	}
	ours := plugin.Table{{Name: "iptables-nft"}}
	if hits := transactions(t, ours, flushNAT); len(hits) > 0 {
		t.Errorf("a program of ours: %+v", hits)
	}
	if hits := transactions(t, ours, flushNAT, "nft delete table inet cnibox"); len(hits) != 1 || hits[0].What != "table inet cnibox was deleted" {
		t.Errorf("somebody else after a program of ours: %+v", hits)
	}
}

// A table that has no rule of ours any more may go.
func TestEmptyTableOfIPTables(t *testing.T) {
	w := &Watch{burst: newBurst(), news: make(chan struct{}, 1)}
	tr := newTransaction(w)
	for _, r := range read(t, "nftables.txt") {
		if r.command == delAttached {
			for m := range messages(r.bytes) {
				tr.read(m)
			}
		}
	}
	header := []byte{unix.NFPROTO_IPV4, 0, 0, 0}
	table := packet(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE, 0, header, attr(nftaTable, []byte("nat\x00")))
	for m := range messages(append(table, packet(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN, 0, header)...)) {
		tr.read(m)
	}
	if hits := w.burst.hits(nil); len(hits) > 0 {
		t.Errorf("%+v", hits)
	}
}

func TestIsOurs(t *testing.T) {
	p := programs{table: plugin.Table{{Name: "bridge"}, {Name: "host-local"}}}
	for name, want := range map[string]bool{
		"bridge": true, "cnv-bridge": true, "host-local": true, "buildkit-cni-br": true, "cnibox": true, "cnictl": true, "cnibox-etcd": true,
		"": false, "nft": false, "mybridge": false, "iptables-restor": false,
	} {
		if got := p.isOurs(name); got != want {
			t.Errorf("%q is ours: %v", name, got)
		}
	}
}

func TestDescribe(t *testing.T) {
	for _, test := range []struct {
		name string
		pid  uint32
		want string
	}{
		{"nft", 4711, "nft (pid 4711)"}, {"", 4711, "(pid 4711)"}, {"", 0, ""}, {"", 1<<32 - 4096, ""}, {"a\x1b[31m\n", 1, "a?[31m? (pid 1)"}, {"a\xff", 1, "a? (pid 1)"},
	} {
		if got := describe(test.name, test.pid); got != test.want {
			t.Errorf("%q, %d: %q, not %q", test.name, test.pid, got, test.want)
		}
	}
}

func TestPrograms(t *testing.T) {
	p := programs{}
	if got, _ := os.ReadFile("/proc/self/comm"); p.nameOf(uint32(os.Getpid())) != strings.TrimSpace(string(got)) {
		t.Errorf("this process is %q, not %q", p.nameOf(uint32(os.Getpid())), got)
	}
	if got := p.nameOf(1<<32 - 1); got != "" {
		t.Errorf("no process is %q", got)
	}
}

func TestSignals(t *testing.T) {
	const owner = "org.freedesktop.DBus.NameOwnerChanged"
	for _, test := range []struct {
		name string
		body []any
		want string
	}{
		{"org.fedoraproject.FirewallD1.Reloaded", nil, "firewalld was reloaded"},
		{owner, []any{"org.fedoraproject.FirewallD1", "", ":1.5"}, "firewalld was started"},
		{owner, []any{"org.fedoraproject.FirewallD1", ":1.5", ""}, ""},
		{owner, []any{"org.other", "", ":1.5"}, ""},
		{owner, []any{1, 2, 3}, ""},
		{owner, nil, ""},
	} {
		if got := parseSignal(&dbus.Signal{Name: test.name, Body: test.body}); got != test.want {
			t.Errorf("%s %v: %q, not %q", test.name, test.body, got, test.want)
		}
	}
}
