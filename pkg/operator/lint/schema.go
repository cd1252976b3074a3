package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/operator/schema"
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
