package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/schema"
)

// checkSchema compares an object with its keys' types, words and bounds, as the JSON Schema of these keys says them. Each mistake is one
// finding, however many rules of the schema it breaks.
func (f *file) checkSchema(v *value, table keys.Table) {
	if v.kind != '{' {
		return
	}
	f.checkForms(v, table)
	var wrong *jsonschema.ValidationError
	if !errors.As(compile(table).Validate(plain(v, table)), &wrong) {
		return
	}
	var seen []string
	for _, leaf := range leaves(wrong) {
		at := strings.Join(leaf.InstanceLocation, "/")
		if slices.Contains(seen, at) {
			continue
		}
		seen = append(seen, at)
		where, key := locate(v, table, leaf.InstanceLocation)
		if missing, is := leaf.ErrorKind.(*kind.Required); is {
			f.reportMissing(where, missing.Missing)
		} else {
			f.reportValue(where, key)
		}
	}
}

// compile makes a validator of the schema of some keys.
func compile(table keys.Table) *jsonschema.Schema {
	const name = "keys.json"
	text, err := json.Marshal(schema.Of(table))
	if err != nil {
		panic(err) // a test compiles all
	}
	if known, is := compiled.Load(string(text)); is {
		return known.(*jsonschema.Schema)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(name, document); err != nil {
		panic(err)
	}
	s := c.MustCompile(name)
	compiled.Store(string(text), s)
	return s
}

// compiled are the validators that were made, by the text of their schema.
var compiled sync.Map

// checkForms looks at addresses, of which a schema's pattern finds the worst only.
func (f *file) checkForms(v *value, table keys.Table) {
	for i := range v.members {
		m := &v.members[i]
		k := fold(table, m.name)
		if k == nil {
			continue
		}
		for _, o := range objectsIn(m.value) {
			f.checkForms(o, k.Keys)
		}
		values := []*value{m.value}
		if k.Type == keys.Strings {
			values = m.value.items
		}
		for _, text := range values {
			if text.kind == '"' && text.text != "" && !isForm(text.text, k.Form) {
				f.reportValue(text, k)
			}
		}
	}
}

// isForm reports whether a text is an address or a network, where that is what a key wants.
func isForm(text string, form keys.Form) bool {
	address, aerr := netip.ParseAddr(text)
	prefix, perr := netip.ParsePrefix(text)
	switch form {
	case keys.Address:
		return aerr == nil && address.Zone() == ""
	case keys.Prefix:
		return perr == nil && prefix == prefix.Masked()
	case keys.AddressWith:
		return perr == nil
	case keys.AddressOrNet:
		return perr == nil || aerr == nil && address.Zone() == ""
	default:
		return true
	}
}

// leaves returns the errors at the bottom of a tree of them.
func leaves(e *jsonschema.ValidationError) (list []*jsonschema.ValidationError) {
	if len(e.Causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	for _, cause := range e.Causes {
		list = append(list, leaves(cause)...)
	}
	return list
}

// plain turns a value into what a validator takes. Keys are spelled as in the table; what is null or unknown is left out.
func plain(v *value, table keys.Table) any {
	switch v.kind {
	case '{':
		object := map[string]any{}
		for i := range v.members {
			name := v.members[i].name
			if k := fold(table, name); k != nil {
				name = k.Name
			} else if table != nil {
				continue
			}
			if m := v.member(name); m != nil {
				var below keys.Table
				if k := fold(table, name); k != nil {
					below = k.Keys
				}
				object[name] = plain(m.value, below)
			}
		}
		return object
	case '[':
		list := make([]any, 0, len(v.items))
		for _, e := range v.items {
			list = append(list, plain(e, table))
		}
		return list
	case '"':
		return v.text
	case '0':
		return json.Number(v.text)
	case 'n':
		return nil
	default:
		return v.kind == 't'
	}
}

// locate returns what stands at the place that a validator names, and the key that it belongs to.
func locate(v *value, table keys.Table, steps []string) (*value, *keys.Key) {
	var key *keys.Key
	for _, step := range steps {
		if v.kind == '[' {
			i, _ := strconv.Atoi(step)
			v = v.items[i]
			continue
		}
		switch k := fold(table, step); {
		case k != nil:
			key, table = k, k.Keys
		case key != nil && (key.Type == keys.StringMap || key.Type == keys.BoolMap):
			key = &keys.Key{Name: step, Type: map[keys.Type]keys.Type{keys.StringMap: keys.String, keys.BoolMap: keys.Bool}[key.Type]}
		}
		v = v.get(step)
	}
	return v, key
}

func (f *file) reportMissing(v *value, missing []string) {
	for _, name := range missing {
		if name != "ipam" { // checkIPAM says that
			f.report("missing-key", span{v.at, v.at + 1, join(v.path, name)}, strconv.Quote(name)+": …", nil, "the key %q is missing", name)
		}
	}
}

// reportValue says what a key wants in place of a value.
func (f *file) reportValue(v *value, k *keys.Key) {
	if k == nil {
		return
	}
	element := k.Type == keys.Strings && v.kind != '[' && strings.HasSuffix(v.path, "]")
	want := k.Type
	if element {
		want = keys.String
	}
	if !fits(v, want) {
		fix, edits := f.convert(v, want)
		f.report("wrong-type", v.span, fix, edits, "%q has to be %s, and is %s", k.Name, wanted(k, want), v.describe())
		return
	}
	switch {
	case want == keys.Int:
		f.report("out-of-range", v.span, "", nil, "%q has to be %s, and is %s", k.Name, wanted(k, want), v.text)
	case k.Words != nil:
		fix, edits := nearestWord(v.text, k.Words), []edit(nil)
		if fix != "" {
			fix = strconv.Quote(fix)
			if strings.EqualFold(fix, strconv.Quote(v.text)) {
				edits = []edit{{v.at, v.end, fix}}
			}
		}
		f.report("wrong-word", v.span, fix, edits, "%q has to be %s, and is %q", k.Name, wanted(k, want), cut(v.text))
	case strings.HasPrefix(v.text, "usePodCidr"): // Calico puts the node's subnet in place of it
	default:
		if p, err := netip.ParsePrefix(v.text); err == nil && p != p.Masked() && k.Form != keys.Address {
			f.reportHostBits(v, p)
			return
		}
		f.report("wrong-form", v.span, "", nil, "%q has to be %s, and is %q", k.Name, wanted(k, want), cut(v.text))
	}
}

func (f *file) reportHostBits(v *value, p netip.Prefix) {
	fix := strconv.Quote(p.Masked().String())
	f.report("host-bits", v.span, fix, []edit{{v.at, v.end, fix}}, "%s is an address in the network %s, not the network", v.text, p.Masked())
}

// fits reports whether a value has a type, with lists and objects looked at from the outside.
func fits(v *value, t keys.Type) bool {
	switch t {
	case keys.String:
		return v.kind == '"'
	case keys.Bool:
		return v.kind == 't' || v.kind == 'f'
	case keys.Int:
		_, err := strconv.ParseInt(v.text, 10, 64)
		return v.kind == '0' && (err == nil || errors.Is(err, strconv.ErrRange))
	case keys.Strings, keys.Objects, keys.ObjectLists:
		return v.kind == '['
	default:
		return v.kind == '{'
	}
}

// convert writes a value in another type, if there is one way only.
func (f *file) convert(v *value, want keys.Type) (fix string, edits []edit) {
	raw := string(f.Text[v.at:v.end])
	switch lower := strings.ToLower(v.text); {
	case v.kind == '"' && want == keys.Int && isNumber(v.text):
		fix = v.text
	case v.kind == '"' && want == keys.Bool && (lower == "true" || lower == "false"):
		fix = lower
	case want == keys.String && (v.kind == '0' || v.kind == 't' || v.kind == 'f'):
		fix = strconv.Quote(v.text)
	case want == keys.Strings && v.kind == '"', want == keys.Objects && v.kind == '{':
		fix = "[" + raw + "]"
	case want == keys.ObjectLists && v.kind == '{':
		fix = "[[" + raw + "]]"
	default:
		return "", nil
	}
	return fix, []edit{{v.at, v.end, fix}}
}

func isNumber(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && strconv.Itoa(n) == text
}

// wanted says what a value of a key has to be.
func wanted(k *keys.Key, t keys.Type) string {
	switch {
	case t == keys.Int && k.Range != nil && k.Range.Max >= 1<<62:
		return fmt.Sprintf("a whole number of at least %d", k.Range.Min)
	case t == keys.Int && k.Range != nil:
		return fmt.Sprintf("a whole number from %d to %d", k.Range.Min, k.Range.Max)
	case t == keys.Bool:
		return "true or false"
	case t == keys.String && k.Words != nil:
		return "one of " + strings.Join(k.Words, ", ")
	case t == keys.String && k.Form != keys.Any:
		return examples[k.Form]
	case t == keys.Strings:
		return "a list of strings"
	}
	return map[keys.Type]string{
		keys.String: "a string", keys.Int: "a whole number", keys.Object: "an object", keys.Objects: "a list of objects",
		keys.ObjectLists: "a list of lists of objects", keys.StringMap: "an object of strings", keys.BoolMap: "an object of true and false",
	}[t]
}

// examples say what a form is.
var examples = map[keys.Form]string{
	keys.Address:      "an IP address such as 10.88.0.1",
	keys.Prefix:       "a network such as 10.88.0.0/16",
	keys.AddressWith:  "an address with its prefix length, such as 10.88.0.7/16",
	keys.AddressOrNet: "an address such as 10.88.0.5 or a network such as 10.88.0.0/28",
	keys.MAC:          "a MAC address such as 02:00:00:12:34:56",
	keys.Interface:    "the name of an interface, of 1 to 15 characters",
	keys.Path:         "an absolute path",
	keys.Hardware:     "a hardware address such as 02:00:00:12:34:56",
	keys.Device:       "a path below /sys/devices/",
}
