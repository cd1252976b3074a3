package conf

import (
	"strings"
	"unicode/utf8"

	"github.com/valyala/fastjson"
)

// JSON returns the object's text, its members in order, duplicates included.
func (o *Object) JSON() []byte {
	if o.value == nil {
		return []byte("{}")
	}
	return appendValue(nil, o.value)
}

// appendValue appends the JSON text of v. (fastjson's own MarshalTo quotes strings and keys that were read before as Go does, \x01,
// which is no JSON.)
func appendValue(out []byte, v *fastjson.Value) []byte {
	separator := ""
	switch v.Type() {
	case fastjson.TypeString:
		s, _ := v.StringBytes()
		return appendString(out, string(s))
	case fastjson.TypeArray:
		out = append(out, '[')
		for _, e := range v.GetArray() {
			out = appendValue(append(out, separator...), e)
			separator = ","
		}
		return append(out, ']')
	case fastjson.TypeObject:
		out = append(out, '{')
		v.GetObject().Visit(func(key []byte, e *fastjson.Value) {
			out = appendString(append(out, separator...), string(key))
			out = appendValue(append(out, ':'), e)
			separator = ","
		})
		return append(out, '}')
	default:
		return v.MarshalTo(out)
	}
}

// appendString appends s as a JSON string, escaped as encoding/json does by default. Bytes that are no UTF-8 become the replacement
// character.
func appendString(out []byte, s string) []byte {
	const hex, named, names = "0123456789abcdef", "\b\f\n\r\t", "bfnrt"
	out = append(out, '"')
	for _, c := range s {
		switch {
		case c == '"', c == '\\':
			out = append(out, '\\', byte(c))
		case strings.ContainsRune(named, c):
			out = append(out, '\\', names[strings.IndexRune(named, c)])
		case c < ' ', c == '<', c == '>', c == '&':
			out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c == '\u2028', c == '\u2029':
			out = append(out, '\\', 'u', '2', '0', '2', hex[c&15])
		default:
			out = utf8.AppendRune(out, c)
		}
	}
	return append(out, '"')
}
