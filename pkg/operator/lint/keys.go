package lint

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/operator/finding"
)

// isNote reports whether a key is a note of people or of other programs, which nobody expects a plugin to read.
func isNote(name string) bool {
	lower := strings.ToLower(name)
	for _, prefix := range []string{"_", "//", "#", "x-", "$", "cni.dev/", "nerdctl", "podman"} {
		if strings.HasPrefix(lower, prefix) {
			return true
		}
	}
	return strings.Contains(name, "/") || slices.Contains([]string{"comment", "comments", "description", "documentation"}, lower)
}

// retired are keys that some version of a reference plugin reads, and cnibox does not: the key that they stand beside, and why.
var retired = map[string][2]string{
	"shapedSubnets":   {"ingressRate", "only version 1.5 of the reference plugin has it: what is limited is all that passes"},
	"unshapedSubnets": {"ingressRate", "only version 1.5 of the reference plugin has it: what is limited is all that passes"},
}

// noted are keys that programs write beside those of a plugin, and that plugins never read: by the key that they stand beside.
var noted = map[string]string{
	"addIf":   "isGateway",  // kubenet's
	"ipRange": "rangeStart", // nerdctl's
}

var (
	notInCnibox = codes.Declare(finding.Code{Name: "not-in-cnibox", Severity: finding.Warning,
		Meaning: "Some version of the reference plugin reads this key, and cnibox does not.",
		Remedy:  "see the plugin's page"})
	unknownKey = codes.Declare(finding.Code{Name: "unknown-key", Severity: finding.Warning, Fixable: true,
		Meaning: "The plugin does not have this key. CNI says that it is ignored: it does nothing.",
		Remedy:  "the key that was meant, or nothing"})
	keyCase = codes.Declare(finding.Code{Name: "key-case", Severity: finding.Info, Fixable: true,
		Meaning: "The key is spelled in upper and lower case of its own. Plugins take it; other programs that read the file may not.",
		Remedy:  "the key as the manual spells it"})
)

// checkKeys looks for keys that an object should not have. who is what reads it, for messages.
func (f *file) checkKeys(v *value, table keys.Table, who string) {
	for i := range v.members {
		m := &v.members[i]
		if table.Find(m.name) != nil || isNote(m.name) || table.Find(noted[m.name]) != nil {
			continue
		}
		if r := retired[m.name]; table.Find(r[0]) != nil {
			f.report(notInCnibox, m.key, "nothing", nil, "%s does not read %q: %s", who, m.name, r[1])
			continue
		}
		key, certain := nearest(m.name, table)
		switch {
		case key != nil && strings.EqualFold(key.Name, m.name):
			f.report(keyCase, m.key, strconv.Quote(key.Name), f.rename(v, m, key.Name), "%q works, and is spelled %q in the manual", m.name, key.Name)
		case key != nil:
			var edits []edit
			if certain && key.Type != keys.Bool && v.member(key.Name) == nil { // a switch is never turned on by a guess
				edits = f.rename(v, m, key.Name)
			}
			f.report(unknownKey, m.key, strconv.Quote(key.Name), edits, "%s has no key %q, and ignores it; did you mean %q?", who, m.name, key.Name)
		default:
			f.report(unknownKey, m.key, "", nil, "%s has no key %q, and ignores it", who, shorten(m.name))
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

var duplicateKey = codes.Declare(finding.Code{Name: "duplicate-key", Severity: finding.Warning,
	Meaning: "An object has a key twice. Only the last one counts.",
	Remedy:  "one of them"})

// checkDuplicates looks for keys that an object has twice, here and below.
func (f *file) checkDuplicates(v *value) {
	for i := range v.members {
		m := &v.members[i]
		for j := range v.members[:i] {
			switch before := &v.members[j]; {
			case before.name == m.name:
				line, _ := f.position(m.key.at)
				f.report(duplicateKey, before.key, "", nil, "the object has %q twice: this one does nothing, the one in line %d counts", m.name, line)
			case strings.EqualFold(before.name, m.name) && !isFree(v.path):
				f.report(duplicateKey, m.key, "", nil, "the object has %q and %q, which are one key", before.name, m.name)
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
	f.checkReach(p)
	f.checkSafety(p)
	f.checkSysctls(p)
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
