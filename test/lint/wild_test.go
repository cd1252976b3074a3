package lint

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/lint"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/plugins/known"
)

// wild returns the files of the archives of testdata/wild.
func wild(t *testing.T, archives ...string) map[string]string {
	texts := map[string]string{}
	for _, name := range archives {
		archive, err := txtar.ParseFile(filepath.Join("testdata", "wild", name+".txtar"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if texts[f.Name] != "" {
				t.Errorf("%s is there twice", f.Name)
			}
			texts[f.Name] = string(f.Data)
		}
	}
	return texts
}

// right are the archives of files without a mistake.
var right = []string{"multus", "lists", "others"}

// mistakesInWild are what lint says of the files that were found with a mistake.
var mistakesInWild = map[string][]string{
	"aws-comment.conflist":              {"3 not-json"},
	"bandwidth-units.conflist":          {"4 wrong-type", "4 wrong-type"},
	"bridge-space.yaml":                 {"5 wrong-form"},
	"bridge-with-master.yaml":           {"5 unknown-key"},
	"cilium-single.conflist":            {"4 wrong-extension"},
	"containerd-bad-ipv6.conflist":      {"2 wrong-form"},
	"delonix.conflist":                  {"1 needs-ipam"},
	"devstack-hairpin-promisc.conflist": {"2 keys-exclude"},
	"firecracker-firewall.conflist":     {"3 version-too-old"},
	"gce-no-snat.conflist":              {"3 unknown-key"},
	"hard-way-loopback-unnamed.conf":    {"1 name-missing"},
	"host-local-in-list.conflist":       {"2 wrong-kind", "2 capability-missing"},
	"ipvlan-gateway-key.conf":           {"1 unknown-key"},
	"ipvlan-host-bits.conf":             {"1 host-bits"},
	"ipvlan-upper-case.conf":            {"1 wrong-word"},
	"istio-unnamed.conf":                {"1 name-missing"},
	"kube-router-no-ipam.conflist":      {"1 needs-ipam"},
	"kubevirt-down-ipam.yaml":           {"5 keys-exclude"},
	"list-with-type.conflist":           {"1 unknown-key"},
	"macvlan-shell-comment.yaml":        {"8 not-json"},
	"macvlan-vlan-id.yaml":              {"5 unknown-key"},
	"macvlan-vlan.yaml":                 {"5 unknown-key"},
	"ovs-vxlan.conf":                    {"1 unknown-key"},
	"ptp-comment.conflist":              {"4 not-json"},
	"ptp-subnet-comma.conflist":         {"10 not-json"},
	"spec-tuning-comma.conflist":        {"3 not-json"},
	"spiderpool-comma.yaml":             {"15 not-json"},
	"sriov-comment.yaml":                {"12 not-json"},
	"static-comma.yaml":                 {"6 not-json"},
	"static-network-address.yaml":       {"10 network-address"},
	"static-routes-only.yaml":           {"6 addresses-missing"},
	"static-strings.conf":               {"1 wrong-type"},
	"tuning-alone.yaml":                 {"5 chained-first"},
	"vlan-service-mode.conf":            {"1 ipam-missing"},
	"whereabouts-bad-ipv6.conf":         nil,
	"yoloai.conflist":                   {"2 no-default-route"},
}

// TestWild lints 300 configurations as people write them: what it says of them is right.
func TestWild(t *testing.T) {
	t.Parallel()
	n := len(files(t, "good"))
	for name, text := range wild(t, right...) {
		n++
		for _, f := range lint.Text(name, []byte(text), options) {
			if f.Severity != finding.Info {
				t.Errorf("%v\n\t%s", f, lineOf(text, f.Line))
			}
		}
	}
	for name, text := range wild(t, "mistakes") {
		n++
		var got []string
		for _, f := range lint.Text(name, []byte(text), options) {
			if f.Severity != finding.Info {
				got = append(got, fmt.Sprintf("%d %s", f.Line, f.Code))
			}
		}
		if !slices.Equal(got, mistakesInWild[name]) {
			t.Errorf("%s: %q, want %q", name, got, mistakesInWild[name])
		}
	}
	t.Logf("%d configurations", n)
	if n < 300 {
		t.Errorf("there are only %d configurations", n)
	}
}

// TestWildMistakes makes one mistake at a time in files of the wild that have none: lint finds it.
func TestWildMistakes(t *testing.T) {
	t.Parallel()
	planted := map[string]int{}
	texts := wild(t, right...)
	maps.Copy(texts, files(t, "good"))
	for name, text := range texts {
		for _, config := range configsIn(t, name, text) {
			var whole map[string]any
			if json.Unmarshal([]byte(config), &whole) != nil || !isSound(config, whole) {
				continue
			}
			for _, o := range ours(whole) {
				for _, m := range mistakesIn(o) {
					planted[m.code]++
					m.make()
					mutated, err := json.MarshalIndent(whole, "", "  ")
					m.unmake()
					if err != nil {
						t.Fatal(err)
					}
					if !slices.ContainsFunc(lint.Text(nameFor(whole), mutated, options), func(f lint.Finding) bool { return f.Code == m.code && f.Severity != finding.Info }) {
						t.Errorf("%s: %s: %s is not found", name, m.what, m.code)
					}
				}
			}
		}
	}
	total := 0
	for _, n := range planted {
		total += n
	}
	t.Logf("%d mistakes: %v", total, planted)
	if total < 1000 {
		t.Errorf("only %d mistakes were made", total)
	}
}

// isSound reports whether nothing is wrong with a network, and it is one.
func isSound(config string, whole map[string]any) bool {
	return !slices.ContainsFunc(lint.Text(nameFor(whole), []byte(config), options), func(f lint.Finding) bool {
		return f.Severity != finding.Info && f.Code != "name-missing" || f.Code == "template"
	})
}

// configsIn returns the networks of a file.
func configsIn(t *testing.T, name, text string) (list []string) {
	if !netconf.IsManifest(name, []byte(text)) {
		return []string{text}
	}
	definitions, err := netconf.Definitions([]byte(text))
	if err != nil {
		t.Fatal(name, err)
	}
	for _, d := range definitions {
		list = append(list, d.Config)
	}
	return list
}

// nameFor is a file's name for a network.
func nameFor(whole map[string]any) string {
	if whole["plugins"] != nil {
		return "10-a.conflist"
	}
	return "10-a.conf"
}

// object is one of a network's that a plugin of ours reads.
type object struct {
	plugin string
	keys   map[string]any
}

// ours returns the objects of our plugins, and of the IPAM plugins that those call.
func ours(whole map[string]any) (list []object) {
	plugins, _ := whole["plugins"].([]any)
	if plugins == nil {
		plugins = []any{whole}
	}
	for _, p := range plugins {
		o, _ := p.(map[string]any)
		kind, _ := o["type"].(string)
		if known.Plugins.Find(kind) == nil || kind == "chain" {
			continue
		}
		list = append(list, object{kind, o})
		ipam, _ := o["ipam"].(map[string]any)
		if of, _ := ipam["type"].(string); known.Plugins.Find(of) != nil {
			list = append(list, object{of, ipam})
		}
	}
	return list
}

// mistake is one that can be made in an object, and taken back.
type mistake struct {
	what, code   string
	make, unmake func()
}

// mistakesIn returns those that the keys of an object allow.
func mistakesIn(o object) (list []mistake) {
	set := func(key string, value any, code string) {
		old := o.keys[key]
		list = append(list, mistake{fmt.Sprintf("%s.%s = %v", o.plugin, key, value), code, func() { o.keys[key] = value }, func() { o.keys[key] = old }})
	}
	for _, key := range slices.Sorted(maps.Keys(o.keys)) {
		k := keyOf(o.plugin, key)
		if k == nil || key == "type" || k.Name != key {
			continue
		}
		old, wrong := o.keys[key], misspelled(key)
		list = append(list, mistake{o.plugin + "." + key + " misspelled", "unknown-key",
			func() { delete(o.keys, key); o.keys[wrong] = old }, func() { delete(o.keys, wrong); o.keys[key] = old }})
		switch old.(type) {
		case bool:
			set(key, "yes", "wrong-type")
		case string:
			set(key, 7, "wrong-type")
		case float64:
			set(key, "1", "wrong-type")
		case []any, map[string]any:
			set(key, true, "wrong-type")
		}
	}
	if subnet, is := o.keys["subnet"].(string); is && strings.HasSuffix(subnet, ".0/24") {
		set("subnet", strings.Replace(subnet, ".0/24", ".9/24", 1), "host-bits")
		set("subnet", "224.0.5.0/24", "address-unusable")
		set("rangeStart", "10.250.0.1", "range-outside")
		set("rangeStart", strings.TrimSuffix(subnet, "/24"), "network-address")
	}
	return list
}
