package conf

import (
	"strings"
	"unicode/utf8"

	"github.com/valyala/fastjson"
)

// JSON returns the object's text, its members in order, duplicates included.
func (o *Object) JSON() []byte { return o.appendTo(nil) }

func (o *Object) appendTo(out []byte) []byte {
	out = append(out, '{')
	start := len(out)
	o.each(func(key []byte, v *fastjson.Value) {
		if len(out) > start {
			out = append(out, ',')
		}
		out = append(AppendString(out, string(key)), ':')
		out = appendValue(out, v)
	})
	return append(out, '}')
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
		return (&Object{value: object}).appendTo(out)
	default:
		return v.MarshalTo(out)
	}
}

// AppendString appends s as a JSON string, escaped as encoding/json does by default. Bytes that are no UTF-8 become the replacement
// character.
func AppendString(out []byte, s string) []byte {
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
