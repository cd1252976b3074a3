// Package conf reads values out of a network configuration.
//
// It binds JSON keys to Go variables the way encoding/json would (keys match without regard to case, the last of two equal keys
// wins, null and unknown keys are ignored: configurations in the wild rely on each of these), but without its reflection, which is
// slow to start, and with errors that name the key by its full path.
//
// A lenient object skips values of a wrong type instead of recording an error: DEL must find what ADD made even when the
// configuration was edited since.
package conf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/valyala/fastjson"
)

// Error says which key of a configuration holds a value it can't hold.
type Error struct {
	Path string // the key's path from the top, such as ipam.ranges[0][1].subnet
	Want string // what belongs there, such as "a string"
	Got  string // what stands there, such as "the number 7"
}

func (e *Error) Error() string {
	return fmt.Sprintf("key %q: want %s, got %s", e.Path, e.Want, e.Got)
}

// Object is one JSON object. The zero of an absent key is an empty object, so that nested reads need no check for presence.
type Object struct {
	value *fastjson.Value // nil is an empty object
	path  string          // where it stands in its document, "" at the top
	state *state
}

// state is shared by an object and all objects below it.
type state struct {
	lenient bool
	err     error
	asked   func(path string)
}

// Parse reads one JSON document, which must be an object.
func Parse(data []byte) (*Object, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("empty")
	}
	v, err := fastjson.ParseBytes(data)
	if err == nil && !json.Valid(data) { // the parser takes some of these
		err = errors.New("a malformed number or string")
	}
	if err != nil {
		why := strings.TrimPrefix(err.Error(), "cannot parse JSON: ")
		return nil, fmt.Errorf("not valid JSON: %s", shorten(why, 300)) // it may quote all of the rest
	}
	if v.Type() != fastjson.TypeObject {
		return nil, fmt.Errorf("not a JSON object but %s", describe(v))
	}
	return &Object{value: v, state: &state{}}, nil
}

// Lenient returns the same object with wrong types ignored, here and below.
func (o *Object) Lenient() *Object {
	lenient := *o
	lenient.state = &state{lenient: true}
	return &lenient
}

// OnRead has f called with the path of each key that is looked for in the document from now on. Tests compare that with what is declared.
func (o *Object) OnRead(f func(path string)) { o.state.asked = f }

// Err returns the first error of this object and all objects read from the same document.
func (o *Object) Err() error { return o.state.err }

// Fail records an error of the caller's own for key, for a value that has the right type and yet can't be used: want says what
// belongs there.
func (o *Object) Fail(key, want, got string) { o.fail(o.Path(key), want, got) }

func (o *Object) fail(path, want, got string) {
	if !o.state.lenient && o.state.err == nil {
		o.state.err = &Error{Path: path, Want: want, Got: got}
	}
}

// Path returns the full path of key, for error messages.
func (o *Object) Path(key string) string {
	if o.path == "" {
		return key
	}
	return o.path + "." + key
}

// Has reports whether key is present with a value other than null.
func (o *Object) Has(key string) bool { return o.find(key) != nil }

// String stores the string at key, if present.
func (o *Object) String(key string, to *string) {
	if b, ok := read(o, key, aString, (*fastjson.Value).StringBytes); ok {
		*to = string(b)
	}
}

// Bool stores the boolean at key, if present.
func (o *Object) Bool(key string, to *bool) {
	if b, ok := read(o, key, aBool, (*fastjson.Value).Bool); ok {
		*to = b
	}
}

// OptionalBool stores a pointer to the boolean at key, if present.
func (o *Object) OptionalBool(key string, to **bool) {
	if b, ok := read(o, key, aBool, (*fastjson.Value).Bool); ok {
		*to = &b
	}
}

// Int stores the integer at key, if present.
func (o *Object) Int(key string, to *int) {
	if n, ok := read(o, key, "a whole number", (*fastjson.Value).Int); ok {
		*to = n
	}
}

// Int64 is Int for what may not fit into 32 bits.
func (o *Object) Int64(key string, to *int64) {
	if n, ok := read(o, key, "a whole number", (*fastjson.Value).Int64); ok {
		*to = n
	}
}

// OptionalInt stores a pointer to the integer at key, if present.
func (o *Object) OptionalInt(key string, to **int) {
	if n, ok := read(o, key, "a whole number", (*fastjson.Value).Int); ok {
		*to = &n
	}
}

// Strings stores the list of strings at key, if present and all of its elements are strings.
func (o *Object) Strings(key string, to *[]string) {
	values, ok := read(o, key, "a list of strings", (*fastjson.Value).Array)
	list := make([]string, 0, len(values))
	for i, v := range values {
		b, is := as(o, element(o.Path(key), i), aString, v, (*fastjson.Value).StringBytes)
		list = append(list, string(b))
		ok = ok && is
	}
	if ok {
		*to = list
	}
}

// Object returns the object at key, an empty one if there is none.
func (o *Object) Object(key string) *Object {
	if v := o.find(key); v != nil {
		if child := o.object(o.Path(key), v); child != nil {
			return child
		}
	}
	return &Object{path: o.Path(key), state: o.state}
}

// Objects calls f for each object of the list at key.
func (o *Object) Objects(key string, f func(e *Object)) {
	values, _ := read(o, key, "a list of objects", (*fastjson.Value).Array)
	o.elements(o.Path(key), values, f)
}

// ObjectLists calls f for each list of the list of lists of objects at key.
func (o *Object) ObjectLists(key string, f func(list []*Object)) {
	values, _ := read(o, key, "a list of lists", (*fastjson.Value).Array)
	for i, v := range values {
		path := element(o.Path(key), i)
		if inner, ok := as(o, path, "a list of objects", v, (*fastjson.Value).Array); ok {
			var list []*Object
			o.elements(path, inner, func(e *Object) { list = append(list, e) })
			f(list)
		}
	}
}

// elements calls f for each of the values that is an object.
func (o *Object) elements(path string, values []*fastjson.Value, f func(e *Object)) {
	for i, v := range values {
		if e := o.object(element(path, i), v); e != nil {
			f(e)
		}
	}
}

// object returns the object that stands at a path, nil if it is something else.
func (o *Object) object(path string, v *fastjson.Value) *Object {
	if _, ok := as(o, path, "an object", v, (*fastjson.Value).Object); !ok {
		return nil
	}
	return &Object{value: v, path: path, state: o.state}
}

func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// Keys returns the keys in document order, duplicates included.
func (o *Object) Keys() []string {
	var keys []string
	o.each(func(key string, _ *fastjson.Value) { keys = append(keys, key) })
	return keys
}

// StringMap calls f for each key and string of the object, in document order, duplicates included.
func (o *Object) StringMap(f func(key, value string)) {
	o.each(func(key string, v *fastjson.Value) {
		if b, ok := as(o, o.Path(key), aString, v, (*fastjson.Value).StringBytes); ok {
			f(key, string(b))
		}
	})
}

// TrueKeys returns the keys whose value is true, in document order. Other values must be false or null.
func (o *Object) TrueKeys() (keys []string) {
	o.each(func(key string, v *fastjson.Value) {
		if v.Type() == fastjson.TypeNull {
			return
		}
		if b, _ := as(o, o.Path(key), aBool, v, (*fastjson.Value).Bool); b {
			keys = append(keys, key)
		}
	})
	return keys
}

// each calls f for each member in document order, duplicates included.
func (o *Object) each(f func(key string, v *fastjson.Value)) {
	o.value.GetObject().Visit(func(key []byte, v *fastjson.Value) { f(string(key), v) })
}

// IsNull reports whether a key has null, which counts as no key everywhere else.
func (o *Object) IsNull(key string) (is bool) {
	o.value.GetObject().Visit(func(k []byte, v *fastjson.Value) {
		is = is || strings.EqualFold(string(k), key) && v.Type() == fastjson.TypeNull
	})
	return is
}

// find returns the value at key, nil if there is none or null. One that is spelled exactly so comes before others, and of those the last.
func (o *Object) find(key string) (found *fastjson.Value) {
	if o.state.asked != nil {
		o.state.asked(o.Path(key))
	}
	exact := false
	o.value.GetObject().Visit(func(k []byte, v *fastjson.Value) {
		if is := string(k) == key; is || !exact && strings.EqualFold(string(k), key) {
			found, exact = v, is
		}
	})
	if found != nil && found.Type() == fastjson.TypeNull {
		return nil
	}
	return found
}

const (
	aString = "a string"
	aBool   = "true or false"
)

// read converts the value at key; ok is false when it is absent or of a wrong type, which is recorded.
func read[T any](o *Object, key, want string, convert func(*fastjson.Value) (T, error)) (value T, ok bool) {
	v := o.find(key)
	if v == nil {
		return value, false
	}
	return as(o, o.Path(key), want, v, convert)
}

// as is read of the value that stands at a path.
func as[T any](o *Object, path, want string, v *fastjson.Value, convert func(*fastjson.Value) (T, error)) (value T, ok bool) {
	value, err := convert(v)
	if err != nil {
		o.fail(path, want, describe(v))
	}
	return value, err == nil
}

// describe names a value for an error message, cut to a length that fits one.
func describe(v *fastjson.Value) string {
	text := shorten(v.String(), 60)
	switch v.Type() {
	case fastjson.TypeString:
		return "the string " + text
	case fastjson.TypeNumber:
		return "the number " + text
	case fastjson.TypeObject:
		return "an object"
	case fastjson.TypeArray:
		return "a list"
	default:
		return text
	}
}

// shorten shortens a text to at most so many bytes of it, and whole characters.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
