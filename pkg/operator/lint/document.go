package lint

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
)

// span is a piece of a file's text.
type span struct {
	at, end int
	path    string // of the key or value that stands there
}

// value is a JSON value and where it stands.
type value struct {
	span
	kind    hujson.Kind
	text    string // of a string what it says; of a number, true, false and null as it is written
	members []member
	items   []*value
}

// member is a key of an object with its value.
type member struct {
	name  string
	key   span // the name in its quotes
	value *value
}

// newValue turns the parser's tree into our own one.
func newValue(h hujson.Value, path string) *value {
	v := &value{span: span{h.StartOffset, h.EndOffset, path}, kind: h.Value.Kind()}
	switch x := h.Value.(type) {
	case hujson.Literal:
		v.text = x.String()
	case *hujson.Array:
		for i, e := range x.Elements {
			v.items = append(v.items, newValue(e, path+"["+strconv.Itoa(i)+"]"))
		}
	case *hujson.Object:
		for _, m := range x.Members {
			name := m.Name.Value.(hujson.Literal).String()
			below := join(path, name)
			v.members = append(v.members, member{name, span{m.Name.StartOffset, m.Name.EndOffset, below}, newValue(m.Value, below)})
		}
	}
	return v
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// member returns the member that plugins read for a key, nil if there is none or it is null: one that is spelled exactly so comes before
// others, and of those the last.
func (v *value) member(name string) (found *member) {
	if v == nil {
		return nil
	}
	exact := false
	for i := range v.members {
		m := &v.members[i]
		if is := m.name == name; is || !exact && strings.EqualFold(m.name, name) {
			found, exact = m, is
		}
	}
	if found != nil && found.value.kind == 'n' {
		return nil
	}
	return found
}

// get returns the value of a key, nil if there is none.
func (v *value) get(name string) *value {
	if m := v.member(name); m != nil {
		return m.value
	}
	return nil
}

// str returns the string at a key, "" if there is none.
func (v *value) str(name string) string {
	if s := v.get(name); s != nil && s.kind == '"' {
		return s.text
	}
	return ""
}

// num returns the number at a key; ok is false if there is none.
func (v *value) num(name string) (n int, ok bool) {
	if s := v.get(name); s != nil && s.kind == '0' {
		n, err := strconv.Atoi(s.text)
		return n, err == nil
	}
	return 0, false
}

// isOn reports whether the value at a key is true.
func (v *value) isOn(name string) bool {
	s := v.get(name)
	return s != nil && s.kind == 't'
}

// find returns what stands at a path such as ipam.ranges[0][1].subnet, or the nearest value around it.
func (v *value) find(path string) *value {
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' }) {
		next := v.get(step)
		if index, is := strings.CutSuffix(step, "]"); is {
			if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(v.items) {
				next = v.items[i]
			}
		}
		if next == nil {
			return v
		}
		v = next
	}
	return v
}

// describe names a value in a message.
func (v *value) describe() string {
	switch v.kind {
	case '"':
		return "the string " + strconv.Quote(shorten(v.text))
	case '0':
		return "the number " + shorten(v.text)
	case '{':
		return "an object"
	case '[':
		return "a list"
	default:
		return v.text
	}
}

func shorten(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// file is a file that is looked at.
type file struct {
	Input
	options  Options
	top      *value   // nil if it can't be read
	network  *network // nil if it is none
	findings []Finding

	definition *netconf.Definition // whose configuration the text is; nil if it is a file's
	manifest   []byte              // the text of the file that has the definition
}

// position returns the line and the column of an offset.
func (f *file) position(at int) (line, column int) {
	text := f.Text
	if f.definition != nil {
		text, at = f.manifest, f.definition.Offset(at)
	}
	before := text[:min(at, len(text))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return 1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCount(before[start:])
}

// report notes a finding. fix says what to write in place; edits write it.
func (f *file) report(code *finding.Code, where span, fix string, edits []edit, format string, args ...any) {
	if f.definition != nil {
		edits = nil // they would have to be quoted as the manifest's string is
	}
	x := Finding{Finding: code.Found(nil, format, args...), at: where.at, end: where.end, edits: edits}
	x.File, x.Path, x.Remedy, x.Fixable = f.Name, where.path, fix, edits != nil
	x.Line, x.Column = f.position(where.at)
	f.findings = append(f.findings, x)
}

// hasErrorIn reports whether an error was found in a piece of the text.
func (f *file) hasErrorIn(where span) bool {
	for _, x := range f.findings {
		if x.Severity == finding.Error && x.at >= where.at && x.at < where.end {
			return true
		}
	}
	return false
}
