package conformance

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

var (
	suitesFlag = flag.String("suites", "links,chain", "which to test: links, copies, chain, reference, debian")
	agentFlag  = flag.Bool("agent", false, "run cnictl agent on each node: rows that take something from an attachment, for CHECK to find it, fail beside it")
	needsFlag  = flag.Bool("needs", false, "try the rows alone that need what a kernel may lack")
	reportFlag = flag.String("report", "", "write what the suites do to this file and the folder beside it, as pages: what was not tried stays there as it is")
	fewFlag    = flag.Int("few", 1, "with -short, try one row of so many of each plugin")
	printFlag  = flag.Bool("outcomes", false, "print what came of each row, for -guest and -kernels")
	guestFlag  = flag.String("guest", "", "have the report take rows that this kernel can't try from this file, which -outcomes printed on another")
)

// groups are all rows.
var groups = []group{
	contractRows,
	bridgeRows,
	ptpRows,
	macvlanRows,
	ipvlanRows,
	vlanRows,
	loopbackRows,
	hostDeviceRows,
	tapRows,
	hostLocalRows,
	staticRows,
	dhcpRows,
	tuningRows,
	portmapRows,
	firewallRows,
	egressRows,
	bandwidthRows,
	sbrRows,
	dnsnameRows,
	vrfRows,
	flannelRows,
	contivRows,
	chainRows,
	dummyRows,
	namesRows,
	humanzRows,
}

// suite is a collection of plugins to test.
type suite struct {
	name string
	dir  string
	// chained has each list as one entry of type chain.
	chained bool
	// ours says that marks of what is known to be wrong apply, reference that those of what differs do.
	ours, reference bool
	// limit is how long a row may take, if there is one.
	limit time.Duration
}

// plugins are the names that a suite of ours has.
var plugins = []string{"bridge", "ptp", "macvlan", "ipvlan", "vlan", "dummy", "loopback", "host-device", "tap", "host-local", "static", "dhcp",
	"tuning", "portmap", "firewall", "egress", "bandwidth", "sbr", "vrf", "dnsname", "flannel", "contivk8s", "chain"}

// newSuite returns the suite of a name that -suites may list.
func newSuite(t *testing.T, name string) *suite {
	t.Helper()
	s := &suite{name: name, ours: true}
	install := os.Symlink
	switch name {
	case "links":
	case "copies":
		install = copyFile
	case "chain":
		s.chained = true
	case "reference":
		return &suite{name: name, dir: netlab.Reference(t), reference: true}
	case "debian":
		return &suite{name: name, dir: netlab.Debian(t)}
	default:
		t.Fatalf("-suites: unknown suite %q", name)
	}
	s.dir = t.TempDir()
	for _, plugin := range plugins {
		if err := install(netlab.Cnibox(t), filepath.Join(s.dir, plugin)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

// has reports whether the suite has a plugin.
func (s *suite) has(plugin string) bool {
	_, err := os.Stat(filepath.Join(s.dir, plugin))
	return err == nil
}

// parallel is how many rows run at once. Most of a row's time is waiting: for the kernel, and for packets that must not come.
const parallel = 6

func TestMain(m *testing.M) {
	if standalone != "" {
		os.Exit(runStandalone(m))
	}
	if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
		panic(err)
	}
	netlab.Main(m)
}

// outcomes are what came of the rows, by suite and row, as the page says it.
type outcomes struct {
	sync.Mutex
	bySuite map[string]map[string]string
}

func TestConformance(t *testing.T) {
	var suites []*suite
	for name := range strings.SplitSeq(*suitesFlag, ",") {
		suites = append(suites, newSuite(t, name))
	}
	if *printFlag {
		printKernel()
	}
	results := &outcomes{bySuite: map[string]map[string]string{}}
	t.Cleanup(func() { // after all rows, which are parallel
		if *reportFlag != "" {
			readOutcomes(t, *guestFlag, results.bySuite)
			updateReport(t, *reportFlag, pageSuites, results.bySuite)
		}
	})
	for _, s := range suites {
		results.bySuite[s.name] = map[string]string{}
		t.Run(s.name, func(t *testing.T) {
			for _, g := range groups {
				t.Run(g.name, func(t *testing.T) {
					t.Parallel()
					for i, all := range g.rows {
						if s.chained && netlab.LeftOut(t, i, 10) {
							continue // what the plugins do is the same there
						}
						if netlab.LeftOut(t, i, *fewFlag) {
							continue
						}
						for k, r := range all.each() {
							if *needsFlag && len(g.needed(r)) == 0 {
								continue
							}
							if k > 0 && netlab.LeftOut(t, i, 2) {
								continue // it was tried with the rules of nftables
							}
							t.Run(r.name, func(t *testing.T) {
								t.Parallel()
								o := s.try(t, g, r)
								results.Lock()
								results.bySuite[s.name][g.name+": "+r.name] = o.String()
								results.Unlock()
								if *printFlag {
									printOutcome(s.name, g.name+": "+r.name, o)
								}
								if o.skipped != "" && len(g.needed(r)) == 0 {
									t.Errorf("%s: a row that needs that says so in needs", o.skipped)
								}
								s.judge(t, r, o)
							})
						}
					}
				})
			}
		})
	}
}

// try tries a row on the suite's plugins.
func (s *suite) try(t *testing.T, g group, r row) outcome {
	t.Helper()
	if slices.Contains(plugins, g.name) && !s.has(g.name) {
		return outcome{foreign: "there is no plugin " + g.name}
	}
	return try(t, func(j *judge) {
		for _, feature := range g.needed(r) {
			netlab.Need(j, feature)
		}
		r.test(newLab(j, s))
	})
}

// judge fails the test unless the outcome is what the row's marks say.
func (s *suite) judge(t *testing.T, r row, o outcome) {
	t.Helper()
	why := strings.Join(o.failures, "\n")
	switch {
	case o.skipped != "":
		t.Skip(o.skipped)
	case o.foreign != "":
		t.Log(o.foreign)
	case s.ours && r.known != "":
		if why == "" {
			t.Errorf("holds now: remove the mark %q", r.known)
		}
		t.Logf("fails, as is known: %s\n%s", r.known, why)
	case s.reference && r.differs != "":
		if why == "" {
			t.Errorf("holds for the reference plugins too: remove %q", r.differs)
		}
		t.Logf("differs: %s\n%s", r.differs, why)
	case s.name == "debian":
		if why != "" {
			t.Log(why) // an older version: its failures are counted, not explained
		}
	case why != "":
		t.Error(why)
	}
}

// TestRows puts the names of all rows on their pages, each with the outcomes that the page has of it.
func TestRows(t *testing.T) {
	if *reportFlag != "" {
		updateReport(t, *reportFlag, pageSuites, map[string]map[string]string{})
	}
}

// TestRowNames makes sure that a row can be told by its name, and that its page has it.
func TestRowNames(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range groups {
		path := pageOf("../../docs/project/conformance.md", g)
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range g.rows {
			name := g.name + ": " + r.name
			if seen[name] {
				t.Errorf("two rows are called %q", name)
			}
			seen[name] = true
			for _, e := range r.each() {
				if !strings.Contains(string(page), fmt.Sprintf("| %s |", e.name)) {
					t.Errorf("%s does not have the row %q: run make rows", path, e.name)
				}
			}
		}
	}
}
