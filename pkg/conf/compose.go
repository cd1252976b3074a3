package conf

import (
	"fmt"
	"slices"
	"strconv"
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

// SetFrom sets each of the keys to what it is in from, if it has it.
func (o *Object) SetFrom(from *Object, keys ...string) {
	for _, key := range keys {
		if v := from.find(key); v != nil {
			o.replace(key, v)
		}
	}
}

// Set sets a key to a string, an int, a bool, a list of strings or objects, a list of such lists of objects, or a *Object. Nothing is set
// for an empty value ("", 0, nil, a list of nothing), but what a pointer points to is never empty; a bool is always given by one.
func (o *Object) Set(key string, value any) {
	if v := valueOf(value); v != nil {
		o.replace(key, v)
	}
}

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
	switch v := value.(type) {
	case string:
		if v != "" {
			return valueOf(&v)
		}
	case *string:
		return fastjson.MustParseBytes(appendString(nil, *v)) // fastjson's own strings are quoted as Go does
	case int:
		if v != 0 {
			return valueOf(&v)
		}
	case int64:
		if v != 0 {
			return new(fastjson.Arena).NewNumberString(strconv.FormatInt(v, 10))
		}
	case *int:
		if v != nil {
			return new(fastjson.Arena).NewNumberInt(*v)
		}
	case *bool:
		switch {
		case v == nil:
		case *v:
			return new(fastjson.Arena).NewTrue()
		default:
			return new(fastjson.Arena).NewFalse()
		}
	case []string:
		return list(v, func(s string) any { return &s })
	case *[]string:
		if v != nil && len(*v) == 0 {
			return new(fastjson.Arena).NewArray()
		}
		if v != nil {
			return valueOf(*v)
		}
	case []*Object:
		return list(v, func(o *Object) any { return o })
	case [][]*Object:
		return list(v, func(inner []*Object) any { return inner })
	case *Object:
		if v != nil {
			return v.value
		}
	default:
		panic(fmt.Sprintf("%T is no type of JSON", value))
	}
	return nil
}

func list[T any](items []T, to func(T) any) *fastjson.Value {
	if len(items) == 0 {
		return nil
	}
	array := new(fastjson.Arena).NewArray()
	for i, item := range items {
		array.SetArrayItem(i, valueOf(to(item)))
	}
	return array
}
