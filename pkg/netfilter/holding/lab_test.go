package holding

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter/expiry"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

var ctx = context.Background()

// The tests' ruleset has addresses, and numbers that share an element as long as
// they have a holder.
var (
	lab    = nftables.Table{Family: unix.NFPROTO_INET, Name: "lab"}
	addrs  = nftables.Set{Table: lab, Name: "addrs", Key: []nftables.Type{nftables.TypeIPv4}, Expiring: true}
	common = nftables.Set{Table: lab, Name: "common", Key: []nftables.Type{nftables.TypeMark}}
)

const (
	use         = "lab"
	firstNumber = 1 << 16
	groupPrefix = "holders_"
)

func ruleset() Ruleset {
	return Ruleset{
		Table:  lab,
		Owners: OwnersSet(lab, "owners", nftables.TypeMark),
		Trials: TrialsSet(lab, "trials"),
		Sets:   []*nftables.Set{&addrs, &common},
		Chains: []nftables.Chain{{Name: "filter", Rules: []nftables.Rule{nftables.MakeRule(nftables.In(&common, nftables.Mark()), nftables.Drop())}}},
		Read: func(data []byte) (Thing, bool) {
			n := binary.NativeEndian.Uint32(data)
			if n >= firstNumber {
				return number(n - firstNumber), true
			}
			return address(n), true
		},
		OfGroup: func(set string) (Thing, bool) {
			var n uint32
			_, err := fmt.Sscanf(set, groupPrefix+"%d", &n)
			return number(n), err == nil
		},
	}
}

// address is the n-th address.
func address(n uint32) Thing {
	addr := netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})
	return Thing{Use: use, Data: nftables.Native(n), Elements: []nftables.Element{{Set: &addrs, Key: nftables.Addr(addr), What: addr.String()}}}
}

func addresses(ns ...uint32) []Thing {
	var out []Thing
	for _, n := range ns {
		out = append(out, address(n))
	}
	return out
}

// number is a number with a group.
func number(n uint32) Thing {
	return Thing{
		Use:    use,
		Data:   nftables.Native(firstNumber + n),
		Group:  GroupSet(lab, fmt.Sprint(groupPrefix, n)),
		Shared: []nftables.Element{{Set: &common, Key: nftables.Native(n), What: fmt.Sprint(n)}},
	}
}

func holder(id string) Holder {
	return HolderOf(plugin.Key{Network: "net", ContainerID: id, IfName: "eth0"}, use)
}

// open opens the table of a host until the test ends.
func open(t testing.TB, h *netlab.Host) *Table {
	t.Helper()
	conn := dial(t, h)
	t.Cleanup(conn.Close)
	return &Table{Ruleset: ruleset(), Conn: conn}
}

func dial(t testing.TB, h *netlab.Host) *nftables.Conn {
	t.Helper()
	var conn *nftables.Conn
	var err error
	h.Do(func() { conn, err = nftables.Open() })
	must(t, err)
	return conn
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ways are the outcomes of a trial that a test can go on with.
var ways = []string{"expire", "remove"}

// try makes the trial of a host.
func try(t testing.TB, table *Table) {
	t.Helper()
	must(t, table.Hold(ctx, holder("trial"), addresses(65535)))
	must(t, table.Release(ctx, holder("trial")))
	nftables.AwaitTick(nftables.Clock())
}

// tried has what is given back after a trial expire, or be removed as with a
// kernel that can't do better.
func tried(t testing.TB, table *Table, way string) {
	t.Helper()
	try(t, table)
	if way == "remove" {
		_, left := expiry.Trial(table.Trials, tryExpiry)
		left.Shared = true
		tx := &nftables.Transaction{}
		tx.AddElements([]nftables.Element{left})
		must(t, table.Conn.Commit(tx))
	}
	if got := outcome(t, table); way == "expire" && !got.Expire {
		t.Skip("this kernel does not let elements expire (Linux 6.12 does): the trial found that out, as TestTrial shows")
	} else if want := (expiry.Way{Expire: way == "expire"}); got != want {
		t.Fatalf("the trial says %+v", got)
	}
}

// outcome is what the trial tells.
func outcome(t testing.TB, table *Table) expiry.Way {
	t.Helper()
	made, left := expiry.Trial(table.Trials, tryExpiry)
	there, err := table.Conn.Look([]nftables.Element{made, left})
	must(t, err)
	return expiry.WayBy(there[0], there[1])
}

// matches tells whether a packet would find a thing, of any owner.
func matches(t testing.TB, table *Table, thing Thing) bool {
	t.Helper()
	left, err := table.Conn.Remaining(thing.Elements...)
	must(t, err)
	there, err := table.Conn.Look(thing.Elements)
	must(t, err)
	return left[0] > 0 || there[0].There
}

var trialElements = regexp.MustCompile(`(?s)(\tset trials \{\n\t\ttype mark \. mark\n\t\tflags timeout\n)\t\telements = \{.*?\}\n`)

// listing returns what nft lists, without the trial, which belongs to nobody.
func listing(t testing.TB, h *netlab.Host) string {
	t.Helper()
	return trialElements.ReplaceAllString(h.MustRun(t, "nft", "list", "ruleset"), "$1")
}

// leavesNothing finds what is left of attachments.
func leavesNothing(t testing.TB, h *netlab.Host) {
	t.Helper()
	if got := listing(t, h); strings.Contains(got, "elements") || strings.Contains(got, groupPrefix) {
		t.Errorf("left behind:\n%s", got)
	}
}

// restore replaces the ruleset by another.
func restore(t testing.TB, h *netlab.Host, saved string) {
	t.Helper()
	h.MustRun(t, "nft", "flush", "ruleset")
	h.Feed(t, saved, "nft", "-f", "-")
}
