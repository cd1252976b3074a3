package conf

import (
	"testing"
)

func TestCompose(t *testing.T) {
	const other = `{"a": {"x": 1, "y": null, "X": 3}, "b": "other", "n": null, "empty": {}, "list": [1]}`
	tests := []struct {
		name, text string
		change     func(o, from *Object)
		want       string
	}{
		{"nothing", `{"b": 1, "a": 3, "b": 2}`, func(*Object, *Object) {}, `{"b":2,"a":3}`},
		{"a new key", `{"c": 1}`, func(o, from *Object) { o.SetFrom(from, "a", "b") }, `{"c":1,"a":{"x":1,"y":null,"X":3},"b":"other"}`},
		{"a key in any case", `{"B": 1, "c": 2, "b": 3}`, func(o, from *Object) { o.SetFrom(from, "b") }, `{"c":2,"b":"other"}`},
		{"the exact one of two", `{"c": 1}`, func(o, from *Object) { o.Set("c", 2); o.SetFrom(from.Object("a"), "x") }, `{"c":2,"x":1}`},
		{"absent or null leaves what is there", `{"n": 1, "m": 2}`, func(o, from *Object) { o.SetFrom(from, "n", "m") }, `{"n":1,"m":2}`},
		{"twice", `{"c": 1}`, func(o, from *Object) { o.SetFrom(from, "a", "b", "a") }, `{"c":1,"b":"other","a":{"x":1,"y":null,"X":3}}`},
		{"some", `{"a": 1}`, func(o, from *Object) { o.Set("a", from.Object("a").Only("y", "x", "z")) }, `{"a":{"x":1,"y":null}}`},
		{"some of nothing", `{"a": 1}`, func(o, from *Object) { o.Set("a", from.Object("none").Only("x")) }, `{"a":{}}`},
		{"some of what is no object", `{"a": 1}`, func(o, from *Object) { o.Set("a", from.Lenient().Object("list").Only("x")) }, `{"a":{}}`},
		{"all types", `{"c": 1}`, func(o, from *Object) {
			o.Set("s", "a\"b")
			o.Set("n", -7)
			o.Set("list", []string{"x", "y"})
			o.Set("c", []*Object{from.Object("empty"), New()})
			o.Set("yes", new(true))
			o.Set("no", new(false))
			o.Set("lists", [][]*Object{{New()}, {New(), New()}})
		}, `{"s":"a\"b","n":-7,"list":["x","y"],"c":[{},{}],"yes":true,"no":false,"lists":[[{}],[{},{}]]}`},
		{"of a copy", `{"c": 1}`, func(o, from *Object) {
			o.SetFrom(from, "b")
			o.Copy().Set("b", 1)
			*o = *o.Copy()
		}, `{"c":1,"b":"other"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, from := parse(t, tt.text), parse(t, other)
			before := string(o.JSON())
			c := o.Copy()
			tt.change(c, from)
			if got := string(c.JSON()); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			same := parse(t, tt.want)
			for _, key := range []string{"a", "A", "b", "c", "n"} {
				if c.Has(key) != same.Has(key) {
					t.Errorf("Has(%q) = %v", key, c.Has(key))
				}
			}
			if after := string(o.JSON()); after != before {
				t.Errorf("the object itself became %s", after)
			}
			if err := from.Err(); err != nil {
				t.Errorf("an error of what was taken from: %v", err)
			}
		})
	}
}

// A copy is a document of its own.
func TestCopyIsStrictAndAtTheTop(t *testing.T) {
	o := parse(t, `{"plugins": [{"mtu": "x", "ipam": {"type": 1}}]}`).Lenient()
	o.Objects("plugins", func(e *Object) {
		c := e.Copy()
		c.Object("ipam").String("type", new(string))
		if want := `key "ipam.type": want a string, got the number 1`; c.Err() == nil || c.Err().Error() != want {
			t.Errorf("error %v, want %s", c.Err(), want)
		}
		lenient := c.Lenient()
		lenient.Int("mtu", new(int))
		if err := lenient.Err(); err != nil {
			t.Errorf("a lenient copy has the error %v", err)
		}
	})
	if err := o.Err(); err != nil {
		t.Errorf("the copy's error is the document's: %v", err)
	}
}
