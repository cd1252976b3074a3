package lint

import (
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"

	"github.com/cnibox/cnibox/pkg/keys"
)

// isNote reports whether a key is a note of people or of other programs, which nobody expects a plugin to read.
func isNote(name string) bool {
	lower := strings.ToLower(name)
	for _, prefix := range []string{"_", "//", "#", "x-", "$", "cni.dev/", "nerdctl", "podman"} {
		if strings.HasPrefix(lower, prefix) {
			return true
		}
	}
	return strings.Contains(name, "/") || slices.Contains([]string{"comment", "comments", "description"}, lower)
}

// retired are keys that some version of a reference plugin reads, and cnibox does not, with the reason.
var retired = map[string]map[string]string{
	"bandwidth": {
		"shapedSubnets":   "only version 1.5 of the reference plugin has it: what is limited is all that passes",
		"unshapedSubnets": "only version 1.5 of the reference plugin has it: what is limited is all that passes",
	},
}

// noted are keys that programs write beside those of a plugin, and that plugins never read.
var noted = map[string][]string{
	"bridge":              {"addIf"},   // kubenet's
	"host-local's ranges": {"ipRange"}, // nerdctl's
}

// checkKeys looks for keys that an object should not have. who is what reads it, for messages.
func (f *file) checkKeys(v *value, table keys.Table, who string) {
	for i := range v.members {
		m := &v.members[i]
		if table.Find(m.name) != nil || isNote(m.name) || slices.Contains(noted[who], m.name) {
			continue
		}
		if why := retired[who][m.name]; why != "" {
			f.report("not-in-cnibox", m.key, "nothing", nil, "%s does not read %q: %s", who, m.name, why)
			continue
		}
		key, certain := nearest(m.name, table)
		switch {
		case key != nil && strings.EqualFold(key.Name, m.name):
			f.report("key-case", m.key, strconv.Quote(key.Name), f.rename(v, m, key.Name), "%q works, and is spelled %q in the manual", m.name, key.Name)
		case key != nil:
			var edits []edit
			if certain && v.member(key.Name) == nil {
				edits = f.rename(v, m, key.Name)
			}
			f.report("unknown-key", m.key, strconv.Quote(key.Name), edits, "%s has no key %q, and ignores it; did you mean %q?", who, m.name, key.Name)
		default:
			f.report("unknown-key", m.key, "", nil, "%s has no key %q, and ignores it", who, cut(m.name))
		}
	}
}

// rename returns the edit that gives a member another key, nil if the object has that one.
func (f *file) rename(v *value, m *member, name string) []edit {
	for i := range v.members {
		if other := &v.members[i]; other != m && strings.EqualFold(other.name, name) {
			return nil
		}
	}
	return []edit{{m.key.at, m.key.end, strconv.Quote(name)}}
}

// nearest returns the key that was most likely meant, nil if none is near. It is certain if no other is as near.
func nearest(name string, table keys.Table) (best *keys.Key, certain bool) {
	least := 0
	for i := range table {
		switch d := distance(name, table[i].Name); {
		case d > mostDistance(name):
		case best == nil || d < least:
			best, least, certain = &table[i], d, true
		case d == least:
			certain = false
		}
	}
	return best, certain
}

// nearestWord is nearest among words, "" if none is near.
func nearestWord(word string, words []string) string {
	best := ""
	for _, w := range words {
		if d := distance(word, w); d <= mostDistance(word) && (best == "" || d < distance(word, best)) {
			best = w
		}
	}
	return best
}

// distance is how many letters have to be changed, whatever their case and what joins words.
func distance(a, b string) int {
	plain := strings.NewReplacer("_", "", "-", "", " ", "")
	a, b = plain.Replace(strings.ToLower(a)), plain.Replace(strings.ToLower(b))
	if len(a) > 64 {
		return len(a)
	}
	d := levenshtein.ComputeDistance(a, b)
	if len(a) == len(b) && d == 2 && sameLetters(a, b) { // two were exchanged
		return 1
	}
	return d
}

func sameLetters(a, b string) bool {
	x, y := []byte(a), []byte(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// mostDistance is how far a word may be from what was meant.
func mostDistance(word string) int {
	switch {
	case len(word) <= 3:
		return 1
	case len(word) <= 7:
		return 2
	default:
		return 3
	}
}

// checkDuplicates looks for keys that an object has twice, here and below.
func (f *file) checkDuplicates(v *value) {
	for i := range v.members {
		m := &v.members[i]
		for j := range v.members[:i] {
			switch before := &v.members[j]; {
			case before.name == m.name:
				line, _ := f.position(m.key.at)
				f.report("duplicate-key", before.key, "", nil, "the object has %q twice: this one does nothing, the one in line %d counts", m.name, line)
			case strings.EqualFold(before.name, m.name) && !isFree(v.path):
				f.report("duplicate-key", m.key, "", nil, "the object has %q and %q, which are one key", before.name, m.name)
			}
		}
		f.checkDuplicates(m.value)
	}
	for _, e := range v.items {
		f.checkDuplicates(e)
	}
}

// isFree reports whether any keys may be in the object at a path, so that upper and lower case differ.
func isFree(path string) bool {
	return strings.HasSuffix(path, "sysctl") || strings.HasSuffix(path, "capabilities") || strings.Contains(path, "args")
}

// checkPart looks at the keys and values of one plugin.
func (f *file) checkPart(p *part) {
	f.checkPlugin(p, false)
	set, known := p.table()
	if known {
		table := f.within(p, set.Own, pluginKeys)
		f.checkKeys(p.value, table, p.kind)
		f.checkBelow(p.value, table, p.kind)
		f.checkSchema(p.value, table)
		f.checkOrigin(p.value, table, p.kind)
		f.checkCapabilities(p, set)
	} else {
		f.checkSchema(p.value, pluginKeys)
	}
	if r := p.get("runtimeConfig"); r != nil && known && r.kind == '{' {
		f.checkSchema(r, set.Runtime)
	}
	f.checkIPAM(p, known, set.Own)
	f.checkLimits(p)
	f.checkSafety(p)
}

// within returns all keys of a part: its plugin's own, and those that are everybody's.
func (f *file) within(p *part, own, common keys.Table) keys.Table {
	all := slices.Clone(own)
	for _, k := range common {
		if own.Find(k.Name) == nil {
			all = append(all, k)
		}
	}
	return all
}

// checkBelow is checkKeys for the objects within an object.
func (f *file) checkBelow(v *value, table keys.Table, who string) {
	for i := range v.members {
		m := &v.members[i]
		k := fold(table, m.name)
		if k == nil || k.Keys == nil {
			continue
		}
		for _, o := range objectsIn(m.value) {
			f.checkKeys(o, k.Keys, who+"'s "+k.Name)
			f.checkBelow(o, k.Keys, who)
		}
	}
}

// fold returns a key whatever its upper and lower case, nil if there is none.
func fold(table keys.Table, name string) *keys.Key {
	if k := table.Find(name); k != nil {
		return k
	}
	for i := range table {
		if strings.EqualFold(table[i].Name, name) {
			return &table[i]
		}
	}
	return nil
}

// objectsIn returns the objects of a list, of a list of lists, or the value itself.
func objectsIn(v *value) (list []*value) {
	if v.kind == '{' {
		return []*value{v}
	}
	for _, e := range v.items {
		list = append(list, objectsIn(e)...)
	}
	return list
}

// checkOrigin says which keys the reference plugins, or a version of them, do not have.
func (f *file) checkOrigin(v *value, table keys.Table, who string) {
	for i := range v.members {
		m := &v.members[i]
		k := fold(table, m.name)
		if k == nil || m.value.kind == 'n' {
			continue
		}
		switch {
		case k.Since == keys.Ours:
			f.report("only-cnibox", m.key, "", nil, "the reference plugins do not read %q of %s", k.Name, who)
		case f.options.Reference != "" && k.Since != "" && newer(k.Since, f.options.Reference):
			f.report("reference-newer", m.key, "", nil, "the reference plugins read %q of %s since version %s, not in %s", k.Name, who, k.Since, f.options.Reference)
		}
		for _, o := range objectsIn(m.value) {
			f.checkOrigin(o, k.Keys, who)
		}
	}
}

// newer reports whether a version of the reference plugins is newer than another. "after 1.9.1" is newer than 1.9.1.
func newer(since, than string) bool {
	plain, after := strings.CutPrefix(since, "after ")
	a, b := numbers(plain), numbers(than)
	c := slices.Compare(a, b)
	return c > 0 || c == 0 && after
}

func numbers(version string) (list []int) {
	for part := range strings.SplitSeq(strings.TrimPrefix(version, "v"), ".") {
		n, _ := strconv.Atoi(part)
		list = append(list, n)
	}
	return list
}
