package conf

import (
	"fmt"
	"slices"
	"strings"

	"github.com/valyala/fastjson"
)

// New returns an object without members, to be filled.
func New() *Object { return &Object{value: new(fastjson.Arena).NewObject(), state: &state{}} }

// Copy returns an object that reads as o does and stands at the top of a document of its own, strict. Its members can be changed,
// and o stays as it is.
func (o *Object) Copy() *Object { return o.only(func(string) bool { return true }) }

// Only returns a copy that has the members with these keys, spelled exactly so.
func (o *Object) Only(keys ...string) *Object {
	return o.only(func(key string) bool { return slices.Contains(keys, key) })
}

func (o *Object) only(wanted func(key string) bool) *Object {
	c := New()
	o.each(func(key string, v *fastjson.Value) {
		if wanted(key) {
			c.value.Set(key, v)
		}
	})
	return c
}

// Take sets each of the keys to what it is in from, if it has it.
func (o *Object) Take(from *Object, keys ...string) {
	for _, key := range keys {
		if v := from.find(key); v != nil {
			o.replace(key, v)
		}
	}
}

// Set sets a key to a string, an int, a *Object, or a list of strings or objects.
func (o *Object) Set(key string, value any) { o.replace(key, valueOf(value)) }

// replace puts a member in place of those that have its key in any case.
func (o *Object) replace(key string, v *fastjson.Value) {
	for _, k := range o.Keys() {
		if strings.EqualFold(k, key) {
			o.value.Del(k)
		}
	}
	o.value.Set(key, v)
}

func valueOf(value any) *fastjson.Value {
	var arena fastjson.Arena
	switch v := value.(type) {
	case string:
		return fastjson.MustParseBytes(appendString(nil, v)) // Arena.NewString quotes as Go does
	case int:
		return arena.NewNumberInt(v)
	case *Object:
		return v.value
	case []string:
		return list(v)
	case []*Object:
		return list(v)
	}
	panic(fmt.Sprintf("%T is no type of JSON", value))
}

func list[T any](items []T) *fastjson.Value {
	array := new(fastjson.Arena).NewArray()
	for i, item := range items {
		array.SetArrayItem(i, valueOf(item))
	}
	return array
}
