package lint

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/lint"
)

var update = flag.Bool("update", false, "write testdata/info.golden anew")

// expected are findings in files of testdata/good that are right.
var expected = []struct{ file, finding, why string }{
	{"cnidev-bandwidth.conflist", "7 no-default-route", "the example's container has a route to its own subnet alone"},
	{"cnidev-bandwidth.conflist", "20 rate-too-low", "123 bits a second are no rate that anybody wants"},
	{"cnidev-bandwidth.conflist", "21 burst-too-small", "456 bits are less than one packet of the example"},
	{"cnidev-bandwidth.conflist", "22 rate-too-low", "as above"},
	{"cnidev-bandwidth.conflist", "23 burst-too-small", "as above"},
	{"cnidev-bridge-disabled.conf", "6 not-json", "the page has a comma too many"},
	{"cnidev-firewall-chain.conflist", "2 version-too-old", "the reference firewall refuses 0.3.1, too: the page is older than that"},
	{"cnidev-firewall.conflist", "2 version-too-old", "the reference firewall refuses 0.3.1, too: the page is older than that"},
	{"cnidev-firewalld.conflist", "2 version-too-old", "the reference firewall refuses 0.3.1, too: the page is older than that"},
	{"cnidev-host-device-pci.conf", "1 name-missing", "the page leaves the name out; libcni wants one"},
	{"cnidev-host-device-runtime.conf", "1 name-missing", "the page leaves the name out; libcni wants one"},
	{"cnidev-host-device.conf", "1 name-missing", "the page leaves the name out; libcni wants one"},
	{"cnidev-portmap-all.conflist", "7 no-default-route", "the example's container has a route to its own subnet alone"},
	{"cnidev-portmap-all.conflist", "19 keys-exclude", "the page shows all keys at once; the reference portmap refuses these two, too"},
	{"cnidev-portmap-nftables.conflist", "7 no-default-route", "the example's container has a route to its own subnet alone"},
	{"cnidev-sbr.conflist", "8 not-json", "the page has a comma too many"},
	{"cnidev-static.conf", "14 gateway-outside", "3ffe:ffff:0::1 is not in 3ffe:ffff:0:1ff::/64: a digit is missing on the page"},
	{"cnidev-tuning-attributes.conf", "3 chained-first", "the page shows the plugin without those before it"},
	{"cnidev-tuning.conf", "3 chained-first", "the page shows the plugin without those before it"},
	{"cnidev-vrf.conflist", "14 not-json", "the page has a comma too many"},
	{"crio-bridge-unlisted.conflist", "4 wrong-extension", "CRI-O shipped it so, and libcni refuses it"},
	{"crio-loopback-unnamed.conf", "1 name-missing", "libcni has wanted a name since 0.8"},
	{"multus-ptp-tuning.conflist", "6 no-default-route", "the example's container has a route to its own subnet alone"},
	{"podman-ipam-empty.conflist", "8 needs-ipam", "podman's test of a file that somebody has edited"},
	{"podman-ipam-empty.conflist", "9 needs-ipam", "as above"},
	{"podman-ipam-static.conflist", "19 wrong-form", "podman's test data has a list too many"},
	{"podman-ipam-static.conflist", "21 unknown-key", "and static calls it \"address\""},
	{"spec-comments.conflist", "7 not-json", "the SPEC shows comments, which no runtime takes"},
	{"spec-comments.conflist", "11 not-json", "as above"},
	{"spec-dbnet.conflist", "9 unknown-key", "the SPEC's placeholder for a plugin's own key"},
}

// TestGood lints what others write by default and show in their manuals: nothing is wrong with it, with the exceptions above. What is
// only good to know is kept in a file, so that a change of it is seen.
func TestGood(t *testing.T) {
	t.Parallel()
	good := files(t, "good")
	var infos strings.Builder
	found := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(good)) {
		for _, f := range lint.Text(name, []byte(good[name]), options) {
			if f.Severity == finding.Info {
				fmt.Fprintln(&infos, f)
				continue
			}
			found[short(f)] = true
			if !slices.ContainsFunc(expected, func(e struct{ file, finding, why string }) bool { return e.file+":"+e.finding == short(f) }) {
				t.Errorf("%v\n\t%s", f, lineOf(good[name], f.Line))
			}
		}
	}
	for _, e := range expected {
		if !found[e.file+":"+e.finding] {
			t.Errorf("%s:%s is not found any more: %s", e.file, e.finding, e.why)
		}
	}

	const golden = "testdata/info.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(infos.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if infos.String() != string(want) {
		t.Errorf("what is good to know has changed: see the difference after go test ./test/lint -update\n%s", infos.String())
	}
}

// TestSources makes sure that the README says where each file is from.
func TestSources(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/good/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	for _, m := range regexp.MustCompile("`([^`/ ]+\\.conf(?:list)?|[a-z]+[-a-z]*\\*[.a-z]*)`").FindAllStringSubmatch(string(text), -1) {
		patterns = append(patterns, m[1])
	}
	for name := range files(t, "good") {
		if !slices.ContainsFunc(patterns, func(p string) bool { ok, _ := filepath.Match(p, name); return ok }) {
			t.Errorf("the README does not say where %s is from", name)
		}
	}
}

// short is a finding without its words.
func short(f lint.Finding) string { return fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Code) }

// example is a network that a page of the manual shows.
type example struct {
	page, text string
	line       int  // of the page, where it begins
	part       bool // one plugin of a network
}

// TestManual lints each network that the manual shows.
func TestManual(t *testing.T) {
	t.Parallel()
	n := 0
	for _, e := range examples(t) {
		n++
		extension := ".conflist"
		if e.part {
			extension = ".conf"
		}
		for _, f := range lint.Text(e.page+extension, []byte(e.text), options) {
			if f.Severity == finding.Info || e.part && (f.Code == "name-missing" || f.Code == "chained-first") {
				continue
			}
			t.Errorf("%s:%d: %s: %s\n\t%s", e.page, e.line+f.Line, f.Code, f.Summary, lineOf(e.text, f.Line))
		}
	}
	t.Logf("%d networks", n)
	if n == 0 {
		t.Error("the manual shows no network")
	}
}

// examples returns the networks and plugins of all pages.
func examples(t *testing.T) (all []example) {
	block := regexp.MustCompile("(?ms)^```json\n(.*?)^```")
	err := filepath.WalkDir("../../docs", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range block.FindAllSubmatchIndex(text, -1) {
			e := example{page: path, text: string(text[m[2]:m[3]]), line: strings.Count(string(text[:m[2]]), "\n")}
			var keys map[string]any
			if err := json.Unmarshal([]byte(e.text), &keys); err != nil {
				t.Errorf("%s:%d: an example is no JSON: %v", path, e.line+1, err)
			}
			_, e.part = keys["type"]
			if keys["plugins"] != nil || e.part {
				all = append(all, e)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
