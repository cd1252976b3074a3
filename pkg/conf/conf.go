// Package conf reads values out of a network configuration.
//
// It binds JSON keys to Go variables the way encoding/json would (keys match
// without regard to case, the last of two equal keys wins, null and unknown
// keys are ignored: configurations in the wild rely on each of these), but
// without reflection, whose first use costs a process of two milliseconds a
// tenth of its life, and with errors that name the key by its full path.
//
// A lenient object skips values of a wrong type instead of recording an error:
// DEL must find what ADD made even when the configuration was edited since.
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

// Object is one JSON object. The zero of an absent key is an empty object, so
// that nested reads need no check for presence.
type Object struct {
	value *fastjson.Object // nil is an empty object
	set   []member         // behind those of value, and in place of the same keys
	place place
	state *state
}

// place is where in its document an object stands. It is made a text only for
// an error: texts for all objects were a third of the allocations of reading a
// result, and the first text that fmt makes in a process takes it 25 us.
type place struct {
	parent *place // nil at the top
	key    string // in the parent; "" for an element of a list in a list
	index  int    // in the list at key, whole when it is no list
}

const whole = -1

func (p *place) String() string {
	if p.parent == nil {
		return ""
	}
	path := p.parent.String()
	if p.key != "" {
		path = join(path, p.key)
	}
	if p.index != whole {
		path += "[" + strconv.Itoa(p.index) + "]"
	}
	return path
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// state is shared by an object and all objects below it.
type state struct {
	lenient bool
	err     error
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
		return nil, fmt.Errorf("not valid JSON: %s", cut(why, 300)) // it may quote all of the rest
	}
	o, err := v.Object()
	if err != nil {
		return nil, fmt.Errorf("not a JSON object but %s", describe(v))
	}
	return &Object{value: o, state: &state{}}, nil
}

// Lenient returns the same object with wrong types ignored, here and below.
func (o *Object) Lenient() *Object {
	lenient := *o
	lenient.state = &state{lenient: true}
	return &lenient
}

// Err returns the first error of this object and all objects read from the
// same document.
func (o *Object) Err() error { return o.state.err }

// Fail records an error of the caller's own for key, for a value that has the
// right type and yet can't be used: want says what belongs there.
func (o *Object) Fail(key, want, got string) {
	o.fail(&Error{Path: o.Path(key), Want: want, Got: got})
}

// Path returns the full path of key, for error messages.
func (o *Object) Path(key string) string { return join(o.place.String(), key) }

// Has tells whether key is present with a value other than null.
func (o *Object) Has(key string) bool { return o.find(key) != nil }

// String stores the string at key, if present.
func (o *Object) String(key string, to *string) {
	if b, ok := read(o, key, "a string", (*fastjson.Value).StringBytes); ok {
		*to = string(b)
	}
}

// Bool stores the boolean at key, if present.
func (o *Object) Bool(key string, to *bool) {
	if b, ok := read(o, key, "true or false", (*fastjson.Value).Bool); ok {
		*to = b
	}
}

// OptionalBool stores a pointer to the boolean at key, if present.
func (o *Object) OptionalBool(key string, to **bool) {
	if b, ok := read(o, key, "true or false", (*fastjson.Value).Bool); ok {
		*to = &b
	}
}

// Int stores the integer at key, if present.
func (o *Object) Int(key string, to *int) {
	if n, ok := read(o, key, "a whole number", (*fastjson.Value).Int); ok {
		*to = n
	}
}

// OptionalInt stores a pointer to the integer at key, if present.
func (o *Object) OptionalInt(key string, to **int) {
	if n, ok := read(o, key, "a whole number", (*fastjson.Value).Int); ok {
		*to = &n
	}
}

// Strings stores the list of strings at key, if present.
func (o *Object) Strings(key string, to *[]string) {
	values, ok := o.array(key, "a list of strings")
	if !ok {
		return
	}
	list := make([]string, 0, len(values))
	for i, v := range values {
		b, err := v.StringBytes()
		if err != nil {
			at := place{&o.place, key, i}
			o.fail(&Error{Path: at.String(), Want: "a string", Got: describe(v)})
			ok = false
			continue
		}
		list = append(list, string(b))
	}
	if ok {
		*to = list
	}
}

// Object returns the object at key, an empty one if there is none.
func (o *Object) Object(key string) *Object {
	return o.child(key, o.find(key))
}

// Objects calls f for each object of the list at key.
func (o *Object) Objects(key string, f func(e *Object)) {
	values, _ := o.array(key, "a list of objects")
	for i, v := range values {
		if e := o.element(place{&o.place, key, i}, v); e != nil {
			f(e)
		}
	}
}

// ObjectLists calls f for each list of the list of lists of objects at key.
func (o *Object) ObjectLists(key string, f func(list []*Object)) {
	values, _ := o.array(key, "a list of lists")
	for i, v := range values {
		at := place{&o.place, key, i}
		inner, err := v.Array()
		if err != nil {
			o.fail(&Error{Path: at.String(), Want: "a list of objects", Got: describe(v)})
			continue
		}
		list := make([]*Object, 0, len(inner))
		for j, w := range inner {
			if e := o.element(place{parent: &at, index: j}, w); e != nil {
				list = append(list, e)
			}
		}
		f(list)
	}
}

// Keys returns the keys in document order, duplicates included.
func (o *Object) Keys() []string {
	var keys []string
	o.each(func(k []byte, _ *fastjson.Value) { keys = append(keys, string(k)) })
	return keys
}

// StringMap calls f for each key and string of the object, in document order,
// duplicates included.
func (o *Object) StringMap(f func(key, value string)) {
	o.each(func(k []byte, v *fastjson.Value) {
		b, err := v.StringBytes()
		if err != nil {
			o.wrong(string(k), "a string", v)
			return
		}
		f(string(k), string(b))
	})
}

// BoolMap calls f for each key and boolean of the object, in document order,
// duplicates included. A null is left out.
func (o *Object) BoolMap(f func(key string, value bool)) {
	o.each(func(k []byte, v *fastjson.Value) {
		if v.Type() == fastjson.TypeNull {
			return
		}
		b, err := v.Bool()
		if err != nil {
			o.wrong(string(k), "true or false", v)
			return
		}
		f(string(k), b)
	})
}

// IsList tells whether key holds a list.
func (o *Object) IsList(key string) bool {
	v := o.find(key)
	return v != nil && v.Type() == fastjson.TypeArray
}

// read converts the value at key; ok is false when it is absent or of a wrong
// type, which is recorded.
func read[T any](o *Object, key, want string, convert func(*fastjson.Value) (T, error)) (value T, ok bool) {
	v := o.find(key)
	if v == nil {
		return value, false
	}
	value, err := convert(v)
	if err != nil {
		o.wrong(key, want, v)
		return value, false
	}
	return value, true
}

func (o *Object) find(key string) *fastjson.Value {
	var found *fastjson.Value
	o.value.Visit(func(k []byte, v *fastjson.Value) {
		if strings.EqualFold(string(k), key) {
			found = v
		}
	})
	for _, m := range o.set {
		if strings.EqualFold(m.key, key) {
			found = m.value
		}
	}
	if found != nil && found.Type() == fastjson.TypeNull {
		return nil
	}
	return found
}

func (o *Object) array(key, want string) (list []*fastjson.Value, ok bool) {
	v := o.find(key)
	if v == nil {
		return nil, false
	}
	list, err := v.Array()
	if err != nil {
		o.wrong(key, want, v)
		return nil, false
	}
	return list, true
}

func (o *Object) child(key string, v *fastjson.Value) *Object {
	c := &Object{place: place{&o.place, key, whole}, state: o.state}
	if v == nil {
		return c
	}
	obj, err := v.Object()
	if err != nil {
		o.wrong(key, "an object", v)
		return c
	}
	c.value = obj
	return c
}

func (o *Object) element(at place, v *fastjson.Value) *Object {
	obj, err := v.Object()
	if err != nil {
		o.fail(&Error{Path: at.String(), Want: "an object", Got: describe(v)})
		return nil
	}
	return &Object{value: obj, place: at, state: o.state}
}

func (o *Object) wrong(key, want string, v *fastjson.Value) {
	o.fail(&Error{Path: o.Path(key), Want: want, Got: describe(v)})
}

func (o *Object) fail(err error) {
	if o.state.lenient || o.state.err != nil {
		return
	}
	o.state.err = err
}

// describe names a value for an error message, cut to a length that fits one.
func describe(v *fastjson.Value) string {
	text := cut(v.String(), 60)
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

// cut shortens a text to at most so many bytes of it, and whole characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
