package plugins_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/known"
)

// object is a JSON object.
type object = map[string]any

// TestReads compares the keys that each plugin looks for with those that it declares.
func TestReads(t *testing.T) {
	for _, row := range known.Plugins {
		t.Run(row.Name, func(t *testing.T) {
			declared, read := declared(row), map[string]bool{}
			for _, path := range slices.Sorted(maps.Keys(declared)) {
				// Each key alone, since some are not looked for beside others.
				_ = parse(t, row, with(base(row), path, sample(declared[path])), func(path string) {
					read[regexp.MustCompile(`\[\d+\]`).ReplaceAllString(path, "[]")] = true
				})
			}
			for path, k := range declared {
				if !read[path] && k.Type != keys.StringMap {
					t.Errorf("%s is declared, and not looked for", path)
				}
			}
			for path := range read {
				if _, ok := declared[path]; !ok && !isCommon(path) && !isBelowOpen(declared, path) {
					t.Errorf("%s is looked for, and not declared", path)
				}
			}
		})
	}
}

// TestRefusals gives each key what it can't be.
func TestRefusals(t *testing.T) {
	for _, row := range known.Plugins {
		t.Run(row.Name, func(t *testing.T) {
			declared := declared(row)
			for _, path := range slices.Sorted(maps.Keys(declared)) {
				for _, value := range wrong(declared[path]) {
					err := parse(t, row, with(base(row), path, value), nil)
					if !blames(err, path) && !(err != nil && slices.Contains(unnamed, path)) {
						t.Errorf("%s: %v gives the error %v", path, value, err)
					}
				}
				for _, value := range right(declared[path]) {
					if err := parse(t, row, with(base(row), path, value), nil); blames(err, path) {
						t.Errorf("%s: %v gives the error %v", path, value, err)
					}
				}
			}
		})
	}
}

// unnamed are keys of which the error says what is wrong with the value, and not where it stands.
var unnamed = []string{"runtimeConfig.mac", "args.cni.mac", "ipam.dataDir", "vrfname"}

// declared returns all keys of a plugin, by their paths.
func declared(row plugin.Descriptor) map[string]keys.Key {
	set, all := row.Plugin.(plugin.Configured).Keys(), map[string]keys.Key{}
	own := ""
	if row.Kind == plugin.IPAM {
		own = "ipam."
	}
	collect(all, own, set.Own)
	collect(all, "runtimeConfig.", set.Runtime)
	collect(all, "args.cni.", set.Args)
	return all
}

func collect(all map[string]keys.Key, prefix string, t keys.Table) {
	for _, k := range t {
		all[prefix+k.Name] = k
		switch k.Type {
		case keys.Object:
			collect(all, prefix+k.Name+".", k.Keys)
		case keys.Objects:
			collect(all, prefix+k.Name+"[].", k.Keys)
		case keys.ObjectLists:
			collect(all, prefix+k.Name+"[][].", k.Keys)
		}
	}
}

// isCommon reports whether all plugins look for a key, or for what it stands in.
func isCommon(path string) bool {
	common := []string{"type", "ipam", "ipam.type", "capabilities", "args", "args.cni", "runtimeConfig"}
	return slices.Contains(common, path) || strings.HasPrefix(path, "capabilities.")
}

// isBelowOpen reports whether a key stands in an object that may have any.
func isBelowOpen(declared map[string]keys.Key, path string) bool {
	for p, k := range declared {
		if k.Keys == nil && (strings.HasPrefix(path, p+".") || strings.HasPrefix(path, p+"[].")) {
			return true
		}
	}
	return false
}

// bases are configurations that plugins accept, where they need more than a type. They have what some keys need beside them.
var bases = map[string]string{
	"bridge":      `"vlanTrunk": [{"minID": 1, "maxID": 4094}]`,
	"ptp":         `"ipam": {"type": "static"}`,
	"dummy":       `"ipam": {"type": "static"}`,
	"vlan":        `"ipam": {"type": "static"}, "master": "eth0"`,
	"host-device": `"device": "eth1", "pciBusID": "0000:01:00.0"`,
	"vrf":         `"vrfname": "red"`,
	"host-local":  `"ipam": {"ranges": [[{"subnet": "10.88.0.0/24"}]], "subnet": "10.99.0.0/24", "routes": [{"dst": "::/0"}]}, "runtimeConfig": {"ipRanges": [[{"subnet": "10.77.0.0/24"}]]}`,
	"etcd": `"ipam": {"ranges": [[{"subnet": "10.88.0.0/24"}]], "subnet": "10.99.0.0/24", "routes": [{"dst": "::/0"}],
		"etcd": {"endpoints": ["http://192.0.2.1:2379"], "certFile": "/c", "keyFile": "/k"}}, "runtimeConfig": {"ipRanges": [[{"subnet": "10.77.0.0/24"}]]}`,
	"static":  `"ipam": {"addresses": [{"address": "10.88.0.2/24"}], "routes": [{"dst": "::/0"}]}`,
	"dhcp":    `"ipam": {"request": [{"option": "3"}], "provide": [{"option": "12"}]}`,
	"portmap": `"runtimeConfig": {"portMappings": [{"hostPort": 1, "containerPort": 1, "protocol": "tcp"}]}`,
	"chain":   `"plugins": [{"type": "bridge"}]`,
}

func base(row plugin.Descriptor) object {
	text := fmt.Sprintf(`{"cniVersion": %q, "name": "demo", "type": %q`, plugin.CurrentVersion, row.Name)
	if more := bases[row.Name]; more != "" {
		text += ", " + more
	}
	o := object{}
	if err := json.Unmarshal([]byte(text+"}"), &o); err != nil {
		panic(err)
	}
	return o
}

// with sets the key at a path, in objects and lists that are made on the way.
func with(o object, path string, value any) object {
	key, rest, below := strings.Cut(path, ".")
	name := strings.TrimRight(key, "[]")
	if !below {
		o[name] = value
		return o
	}
	inner, _ := o[name].(object)
	list, _ := o[name].([]any)
	for list != nil && inner == nil {
		inner, _ = list[0].(object)
		list, _ = list[0].([]any)
	}
	if inner == nil {
		inner = object{}
	}
	inner = with(inner, rest, value)
	switch strings.TrimPrefix(key, name) {
	case "[]":
		o[name] = []any{inner}
	case "[][]":
		o[name] = []any{[]any{inner}}
	default:
		o[name] = inner
	}
	return o
}

// parse has a plugin read a configuration.
func parse(t *testing.T, row plugin.Descriptor, o object, asked func(path string)) error {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	config, err := conf.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	config.OnRead(asked)
	return row.Plugin.(plugin.Configured).Parse(&plugin.Request{
		Command: plugin.Status, Key: plugin.Key{Network: "demo"}, Version: plugin.CurrentVersion, Config: config, Plugins: known.Plugins,
	})
}

// blames reports whether an error says that the key at a path is to blame.
func blames(err error, path string) bool {
	if err == nil {
		return false
	}
	path = strings.NewReplacer("[]", "[0]").Replace(path)
	if e := (*conf.Error)(nil); errors.As(err, &e) {
		return strings.HasPrefix(e.Path, path)
	}
	return strings.Contains(plugin.AsError(err).Msg, path[strings.LastIndex(path, ".")+1:])
}

// samples are texts of each form.
var samples = map[keys.Form]string{
	keys.Any: "1", keys.Address: "10.88.0.7", keys.Prefix: "10.88.0.0/24", keys.AddressWith: "10.88.0.7/24", keys.AddressOrNet: "10.88.0.7",
	keys.MAC: "02:00:00:12:34:56", keys.Hardware: "02:00:00:12:34:56", keys.Interface: "eth0", keys.Path: "/run/x", keys.Device: "/sys/devices/x",
}

// sample is a value that a key can have.
func sample(k keys.Key) any {
	switch k.Type {
	case keys.Bool:
		return true
	case keys.Int:
		return 1
	case keys.String:
		return samples[k.Form]
	case keys.Strings:
		return []any{samples[k.Form]}
	case keys.Objects:
		return []any{object{}}
	case keys.ObjectLists:
		return []any{[]any{object{}}}
	}
	return object{}
}

// right are values that a key can have, whatever is beside it.
func right(k keys.Key) (values []any) {
	for _, word := range k.Words {
		values = append(values, word)
		if k.Type == keys.Strings {
			values[len(values)-1] = []any{word}
		}
	}
	if r := k.Range; r != nil {
		values = append(values, r.Min, r.Max)
		if r.Zero {
			values = append(values, 0)
		}
		if r.Negative {
			values = append(values, -1)
		}
	}
	return values
}

// wrong are values that a key can't have.
func wrong(k keys.Key) []any {
	switch k.Type {
	case keys.Bool:
		return []any{"true", 1, object{}}
	case keys.Int:
		values := []any{"1", 1.5, true}
		if r := k.Range; r != nil {
			if r.Max < 1<<40 {
				values = append(values, r.Max+1)
			}
			if least := r.Min - 1; !(r.Negative && least <= 0) && !(r.Zero && least == 0) {
				values = append(values, least)
			}
		}
		return values
	case keys.String:
		values := []any{1, true, object{}}
		if k.Words != nil || k.Form != keys.Any {
			values = append(values, "no such word/")
		}
		return values
	case keys.Strings:
		values := []any{"text", []any{1}, object{}}
		if k.Words != nil || k.Form != keys.Any {
			values = append(values, []any{"no such word/"})
		}
		return values
	case keys.Objects, keys.ObjectLists:
		return []any{"text", object{}, []any{1}}
	case keys.StringMap:
		return []any{"text", object{"a": 1}}
	}
	return []any{"text", 1, []any{}}
}

// A plugin that is missing in the table of one that says which keys it reads is found by a panic above; this says what to do.
func TestConfigured(t *testing.T) {
	for _, row := range known.Plugins {
		if _, ok := row.Plugin.(plugin.Configured); !ok {
			t.Fatalf("%s does not say which keys it reads: see plugin.Configured", row.Name)
		}
	}
}
