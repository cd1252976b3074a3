package lint

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/known"
)

// mutation is a base file with one mistake in it.
type mutation struct {
	file string // of testdata/base
	what string // the mistake
	text string
	line int    // of the mistake
	code string // that lint must find on this line
}

// member is a line of a base file that begins with a key.
var member = regexp.MustCompile(`^( +)"([^"]+)": (.*?)(,?)$`)

// byTable makes the mistakes that follow from the tables of keys: each in each line of a base file where it can be made.
func byTable(file, text string) (all []mutation) {
	lines := strings.Split(text, "\n")
	for i, at := range keysOf(lines) {
		if at.key == nil {
			continue
		}
		add := func(what, code string, changed ...string) {
			mutated := slices.Concat(lines[:i], changed, lines[i+1:])
			all = append(all, mutation{file, at.plugin + "." + at.key.Name + " " + what, strings.Join(mutated, "\n"), i + 1, code})
		}
		with := func(name, value string) string {
			return at.indent + `"` + name + `": ` + value + at.comma
		}
		add("misspelled", "unknown-key", with(misspelled(at.key.Name), at.value))
		if !at.whole {
			continue
		}
		for _, value := range wrongTypes(at.key.Type) {
			add("= "+value, "wrong-type", with(at.key.Name, value))
		}
		for _, value := range outOfRange(at.key) {
			add("= "+value, "out-of-range", with(at.key.Name, value))
		}
		for _, value := range wrongForms(at.key) {
			add("= "+value, "wrong-form", with(at.key.Name, value))
		}
		if at.key.Words != nil {
			add("= another word", "wrong-word", with(at.key.Name, map[keys.Type]string{keys.String: `"nonsense"`, keys.Strings: `["nonsense"]`}[at.key.Type]))
		}
		add("twice", "duplicate-key", with(at.key.Name, at.value)+strings.Repeat(",", 1-len(at.comma)), lines[i])
	}
	return all
}

// place is a key of a base file.
type place struct {
	plugin        string
	key           *keys.Key // nil if no table has it
	indent, value string
	comma         string
	whole         bool // the value ends on the key's line
}

// keysOf says for each line which key of which plugin it begins with.
func keysOf(lines []string) []place {
	places := make([]place, len(lines))
	current, free := "", "" // the plugin whose keys follow, and the indentation of an object with keys of the user's
	for i, line := range lines {
		m := member.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		p := place{indent: m[1], value: m[3], comma: m[4], whole: !strings.HasSuffix(m[3], "{") && !strings.HasSuffix(m[3], "[")}
		if free != "" && len(p.indent) > len(free) {
			continue
		}
		free = ""
		switch m[2] {
		case "type":
			current = strings.Trim(m[3], `"`)
			continue
		case "capabilities":
			free = p.indent
			continue
		case "sysctl", "delegate":
			free = p.indent
		}
		p.plugin, p.key = current, keyOf(current, m[2])
		places[i] = p
	}
	return places
}

// keyOf returns a key that a plugin has, on whatever level.
func keyOf(name, key string) *keys.Key {
	for _, row := range known.Plugins {
		if row.Name == name {
			return findKey(row.Plugin.(plugin.Configured).Keys().Own, key)
		}
	}
	return nil
}

func findKey(t keys.Table, name string) *keys.Key {
	if k := t.Find(name); k != nil {
		return k
	}
	for _, k := range t {
		if below := findKey(k.Keys, name); below != nil {
			return below
		}
	}
	return nil
}

// misspelled exchanges two letters in the middle of a name, or doubles its last one.
func misspelled(name string) string {
	i := len(name) / 2
	if len(name) < 5 || name[i] == name[i-1] {
		return name + name[len(name)-1:]
	}
	return name[:i-1] + name[i:i+1] + name[i-1:i] + name[i+1:]
}

func wrongTypes(t keys.Type) []string {
	switch t {
	case keys.String:
		return []string{`7`, `true`, `["x"]`}
	case keys.Bool:
		return []string{`"yes"`, `1`}
	case keys.Int:
		return []string{`"1400"`, `1.5`, `true`}
	case keys.Strings:
		return []string{`"x"`, `[1]`, `{"x": "y"}`}
	default:
		return nil // on several lines in base files
	}
}

func outOfRange(k *keys.Key) (values []string) {
	if k.Range == nil {
		return nil
	}
	if k.Range.Max < math.MaxInt {
		values = append(values, fmt.Sprint(k.Range.Max+1))
	}
	if !k.Range.Negative {
		values = append(values, "-1")
	}
	if below := k.Range.Min - 1; below > 0 || below == 0 && !k.Range.Zero {
		values = append(values, fmt.Sprint(below))
	}
	return values
}

// wrongForms returns values of the right type that a key's form forbids.
func wrongForms(k *keys.Key) (values []string) {
	wrong := map[keys.Form][]string{
		keys.Address:      {"10.88.0.300", "10.88.0.1/16", "gateway"},
		keys.Prefix:       {"10.88.0.0", "10.88.0.0/33", "10.88.0/16"},
		keys.AddressWith:  {"10.88.0.7", "10.88.0.7/129", "default"},
		keys.AddressOrNet: {"10.88.0.300", "10.88.0.0/33"},
		keys.MAC:          {"c2:b0:57:49:47", "c2:b0:57:49:47:fg"},
		keys.Interface:    {"more-than-15-bytes", "a/b", "a b"},
		keys.Path:         {"run/relative"},
	}
	for _, value := range wrong[k.Form] {
		value = `"` + value + `"`
		if k.Type == keys.Strings {
			value = "[" + value + "]"
		}
		values = append(values, value)
	}
	return values
}
