package conf

import (
	"slices"
	"unicode/utf8"

	"github.com/valyala/fastjson"
)

// Member is a key of an object and the JSON text of its value.
type Member struct {
	Key   string
	Value []byte
}

// Members is an object taken apart, to compose another one from.
type Members []Member

// Members returns the object's members in document order, duplicates included.
func (o *Object) Members() Members {
	var list Members
	if o.value != nil {
		o.value.Visit(func(k []byte, v *fastjson.Value) {
			list = append(list, Member{string(k), appendValue(nil, v)})
		})
	}
	return list
}

// Set returns the members with key, spelled exactly so, holding value. It comes
// last, so that it also wins over the same key in another case.
func (m Members) Set(key string, value []byte) Members {
	others := slices.DeleteFunc(slices.Clone(m), func(e Member) bool { return e.Key == key })
	return append(others, Member{key, value})
}

// JSON returns the text of the object that has these members.
func (m Members) JSON() []byte {
	out := []byte{'{'}
	for i, e := range m {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(AppendString(out, e.Key), ':')
		out = append(out, e.Value...)
	}
	return append(out, '}')
}

// AppendString appends s as a JSON string. Only what JSON forbids is escaped,
// and bytes that are no UTF-8 become the replacement character.
func AppendString(out []byte, s string) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', byte(c))
		case c == '\n':
			out = append(out, `\n`...)
		case c == '\t':
			out = append(out, `\t`...)
		case c < ' ':
			out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			out = utf8.AppendRune(out, c)
		}
	}
	return append(out, '"')
}

// appendValue appends the JSON text of v. (fastjson's own MarshalTo quotes
// strings and keys that were read before as Go does, \x01, which is no JSON.)
func appendValue(out []byte, v *fastjson.Value) []byte {
	switch v.Type() {
	case fastjson.TypeString:
		s, _ := v.StringBytes()
		return AppendString(out, string(s))
	case fastjson.TypeArray:
		list, _ := v.Array()
		out = append(out, '[')
		for i, e := range list {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendValue(out, e)
		}
		return append(out, ']')
	case fastjson.TypeObject:
		object, _ := v.Object()
		return append(out, (&Object{value: object}).Members().JSON()...)
	default:
		return v.MarshalTo(out)
	}
}
