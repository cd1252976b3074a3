package conf

import (
	"slices"
	"strings"
	"testing"
)

func parse(t *testing.T, text string) *Object {
	t.Helper()
	o, err := Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%s): %v", text, err)
	}
	return o
}

func TestParseRefuses(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"nothing", "", "empty"},
		{"white space", " \n", "empty"},
		{"no JSON", "bridge", "not valid JSON"},
		{"cut off", `{"name": "demo"`, "not valid JSON"},
		{"two documents", `{} {}`, "not valid JSON"},
		{"comma at the end", `{"name": "demo",}`, "not valid JSON"},
		{"number with a leading zero", `{"mtu": 01500}`, "not valid JSON"},
		{"number without digits", `{"mtu": -}`, "not valid JSON"},
		{"line end in a string", "{\"name\": \"a\nb\"}", "not valid JSON"},
		{"unknown escape", `{"name": "\x"}`, "not valid JSON"},
		{"list", `[]`, "not a JSON object but a list"},
		{"string", `"demo"`, `not a JSON object but the string "demo"`},
		{"number", `7`, "not a JSON object but the number 7"},
		{"null", `null`, "not a JSON object but null"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := Parse([]byte(tt.text))
			if err == nil {
				t.Fatalf("Parse(%q) = %v, want an error", tt.text, o.Keys())
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse(%q): %q, want it to contain %q", tt.text, err, tt.want)
			}
		})
	}
}

// A document nested this deep once would have ended the process: a stack that
// overflows can't be recovered from.
func TestParseRefusesDeepNesting(t *testing.T) {
	for _, open := range []string{"[", `{"a":`} {
		text := `{"ipam":` + strings.Repeat(open, 4<<20)
		_, err := Parse([]byte(text))
		if err == nil {
			t.Fatalf("4 Mi of %q were accepted", open)
		}
		if len(err.Error()) > 400 {
			t.Errorf("the error has %d bytes: %.100s…", len(err.Error()), err)
		}
	}
}

func TestParseErrorIsShort(t *testing.T) {
	_, err := Parse([]byte(`{"a": t` + strings.Repeat("é", 1<<20)))
	if err == nil || len(err.Error()) > 400 {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}

func TestKeysMatchInAnyCase(t *testing.T) {
	tests := []struct {
		name, text string
		want       string
	}{
		{"exact", `{"isGateway": "a"}`, "a"},
		{"lower case", `{"isgateway": "a"}`, "a"},
		{"upper case", `{"ISGATEWAY": "a"}`, "a"},
		{"last of two wins", `{"isGateway": "a", "isGateway": "b"}`, "b"},
		{"the exact one wins, first", `{"isGateway": "a", "ISGATEWAY": "b"}`, "a"},
		{"the exact one wins, in the middle", `{"ISGATEWAY": "b", "isGateway": "a", "isgateway": 7}`, "a"},
		{"last of two that are not exact wins", `{"isgateway": "a", "ISGATEWAY": "b"}`, "b"},
		{"an exact null is none", `{"isGateway": null, "ISGATEWAY": "b"}`, "unset"},
		{"absent", `{"isgateways": "a"}`, "unset"},
		{"null", `{"isGateway": null}`, "unset"},
		{"null after a value", `{"isGateway": "a", "isGateway": null}`, "unset"},
		{"escaped key", `{"is\u0047ateway": "a"}`, "a"},
		{"Kelvin sign is a k", `{"isGateway": "a", "\u212A": "b"}`, "a"},
		{"empty string", `{"isGateway": ""}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := parse(t, tt.text)
			got := "unset"
			o.String("isGateway", &got)
			if got != tt.want || o.Err() != nil {
				t.Errorf("got %q, error %v; want %q", got, o.Err(), tt.want)
			}
			if has := tt.want != "unset"; o.Has("isGateway") != has {
				t.Errorf("Has = %v, want %v", !has, has)
			}
		})
	}
}

func TestValues(t *testing.T) {
	o := parse(t, `{
		"s": "a\"\u00e9\ud83d\ude00/", "b": true, "no": false, "n": -7, "zero": 0,
		"list": ["x", "y"], "empty": [], "o": {"in": {"deep": 1}}, "raw": {"A": [1, 2.50, null]}
	}`)
	var s string
	o.String("s", &s)
	if want := "a\"é😀/"; s != want {
		t.Errorf("String = %q, want %q", s, want)
	}
	b, no := false, true
	o.Bool("b", &b)
	o.Bool("no", &no)
	if !b || no {
		t.Errorf("Bool = %v, %v", b, no)
	}
	var optional, absent *bool
	o.OptionalBool("no", &optional)
	o.OptionalBool("absent", &absent)
	if optional == nil || *optional || absent != nil {
		t.Errorf("OptionalBool = %v, %v", optional, absent)
	}
	n := 0
	o.Int("n", &n)
	if n != -7 {
		t.Errorf("Int = %d", n)
	}
	var zero, none *int
	o.OptionalInt("zero", &zero)
	o.OptionalInt("absent", &none)
	if zero == nil || *zero != 0 || none != nil {
		t.Errorf("OptionalInt = %v, %v", zero, none)
	}
	list, empty := []string(nil), []string(nil)
	o.Strings("list", &list)
	o.Strings("empty", &empty)
	if !slices.Equal(list, []string{"x", "y"}) || empty == nil || len(empty) != 0 {
		t.Errorf("Strings = %q, %#v", list, empty)
	}
	deep := 0
	o.Object("o").Object("in").Int("deep", &deep)
	if deep != 1 {
		t.Errorf("nested Int = %d", deep)
	}
	if text := string(o.Object("raw").JSON()); text != `{"A":[1,2.50,null]}` {
		t.Errorf("JSON = %s", text)
	}
	if o.Err() != nil {
		t.Error(o.Err())
	}
}

func TestAbsentObjectsCanBeRead(t *testing.T) {
	o := parse(t, `{"ipam": null}`)
	for _, key := range []string{"ipam", "absent"} {
		e := o.Object(key).Object("more")
		s := "unset"
		e.String("type", &s)
		e.Objects("ranges", func(*Object) { t.Error("an element of nothing") })
		e.ObjectLists("ranges", func([]*Object) { t.Error("a list of nothing") })
		e.StringMap(func(k, v string) { t.Error("an entry of nothing") })
		if s != "unset" || e.Keys() != nil || e.Has("type") {
			t.Errorf("%s: an empty object has something", key)
		}
	}
	if o.Err() != nil {
		t.Error(o.Err())
	}
}

func TestObjectLists(t *testing.T) {
	o := parse(t, `{"ranges": [[{"subnet": "a"}, {"subnet": "b"}], [], [{"subnet": "c"}]]}`)
	var got [][]string
	o.ObjectLists("ranges", func(list []*Object) {
		set := []string{}
		for _, e := range list {
			var s string
			e.String("subnet", &s)
			set = append(set, s)
		}
		got = append(got, set)
	})
	want := [][]string{{"a", "b"}, {}, {"c"}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMapsKeepOrderAndDuplicates(t *testing.T) {
	o := parse(t, `{"sysctl": {"b": "1", "a": "2", "B": "3", "b": "4"}}`).Object("sysctl")
	want := []string{"b", "a", "B", "b"}
	if keys := o.Keys(); !slices.Equal(keys, want) {
		t.Errorf("Keys = %q, want %q", keys, want)
	}
	var got []string
	o.StringMap(func(k, v string) { got = append(got, k+"="+v) })
	if want := []string{"b=1", "a=2", "B=3", "b=4"}; !slices.Equal(got, want) {
		t.Errorf("StringMap = %q, want %q", got, want)
	}
}

// wrongTypes are reads of values that have another type, with the error each
// must record in a strict object.
var wrongTypes = []struct {
	name, text string
	read       func(o *Object)
	want       string
}{
	{"string", `{"mtu": 7}`, func(o *Object) { o.String("mtu", new(string)) },
		`key "mtu": want a string, got the number 7`},
	{"bool", `{"isGateway": "true"}`, func(o *Object) { o.Bool("isGateway", new(bool)) },
		`key "isGateway": want true or false, got the string "true"`},
	{"optional bool", `{"isGateway": 1}`, func(o *Object) { o.OptionalBool("isGateway", new(*bool)) },
		`key "isGateway": want true or false, got the number 1`},
	{"int", `{"mtu": "1500"}`, func(o *Object) { o.Int("mtu", new(int)) },
		`key "mtu": want a whole number, got the string "1500"`},
	{"fraction", `{"mtu": 1500.5}`, func(o *Object) { o.Int("mtu", new(int)) },
		`key "mtu": want a whole number, got the number 1500.5`},
	{"exponent", `{"mtu": 1e3}`, func(o *Object) { o.Int("mtu", new(int)) },
		`key "mtu": want a whole number, got the number 1e3`},
	{"too large", `{"mtu": 99999999999999999999}`, func(o *Object) { o.Int("mtu", new(int)) },
		`key "mtu": want a whole number, got the number 99999999999999999999`},
	{"optional int", `{"table": true}`, func(o *Object) { o.OptionalInt("table", new(*int)) },
		`key "table": want a whole number, got true`},
	{"list of strings", `{"dns": {"search": "a"}}`, func(o *Object) { o.Object("dns").Strings("search", new([]string)) },
		`key "dns.search": want a list of strings, got the string "a"`},
	{"string in a list", `{"dns": {"search": ["a", 1]}}`, func(o *Object) { o.Object("dns").Strings("search", new([]string)) },
		`key "dns.search[1]": want a string, got the number 1`},
	{"null in a list", `{"search": [null]}`, func(o *Object) { o.Strings("search", new([]string)) },
		`key "search[0]": want a string, got null`},
	{"object", `{"ipam": []}`, func(o *Object) { o.Object("ipam") },
		`key "ipam": want an object, got a list`},
	{"nested object", `{"ipam": {"a": {"b": "c"}}}`, func(o *Object) { o.Object("ipam").Object("a").Object("b") },
		`key "ipam.a.b": want an object, got the string "c"`},
	{"list of objects", `{"routes": {}}`, func(o *Object) { o.Objects("routes", func(*Object) {}) },
		`key "routes": want a list of objects, got an object`},
	{"object in a list", `{"routes": [{}, "x"]}`, func(o *Object) { o.Objects("routes", func(*Object) {}) },
		`key "routes[1]": want an object, got the string "x"`},
	{"key in a list", `{"ipam": {"routes": [{}, {"dst": 1}]}}`,
		func(o *Object) {
			o.Object("ipam").Objects("routes", func(e *Object) { e.String("dst", new(string)) })
		},
		`key "ipam.routes[1].dst": want a string, got the number 1`},
	{"list of lists", `{"ipam": {"ranges": [{"subnet": "a"}]}}`,
		func(o *Object) { o.Object("ipam").ObjectLists("ranges", func([]*Object) {}) },
		`key "ipam.ranges[0]": want a list of objects, got an object`},
	{"object in a list of lists", `{"ranges": [[], [{}, 3]]}`,
		func(o *Object) { o.ObjectLists("ranges", func([]*Object) {}) },
		`key "ranges[1][1]": want an object, got the number 3`},
	{"map", `{"sysctl": {"a": "b", "net.x": 1}}`,
		func(o *Object) { o.Object("sysctl").StringMap(func(string, string) {}) },
		`key "sysctl.net.x": want a string, got the number 1`},
	{"a long value is cut", `{"mtu": "` + strings.Repeat("é", 100) + `"}`, func(o *Object) { o.Int("mtu", new(int)) },
		`key "mtu": want a whole number, got the string "` + strings.Repeat("é", 29) + "…"},
}

func TestWrongTypeNamesTheKey(t *testing.T) {
	for _, tt := range wrongTypes {
		t.Run(tt.name, func(t *testing.T) {
			o := parse(t, tt.text)
			tt.read(o)
			if o.Err() == nil || o.Err().Error() != tt.want {
				t.Errorf("error %v\nwant  %s", o.Err(), tt.want)
			}
		})
	}
}

func TestLenientIgnoresWrongTypes(t *testing.T) {
	for _, tt := range wrongTypes {
		t.Run(tt.name, func(t *testing.T) {
			o := parse(t, tt.text).Lenient()
			tt.read(o)
			if o.Err() != nil {
				t.Error(o.Err())
			}
		})
	}
}

func TestLenientKeepsWhatIsRight(t *testing.T) {
	o := parse(t, `{"ipam": {"type": "host-local", "routes": [7, {"dst": "a"}], "dataDir": 1}, "bridge": "cni0", "mtu": "x"}`).Lenient()
	bridge, kind, dir, mtu := "", "", "default", 1500
	o.String("bridge", &bridge)
	o.Int("mtu", &mtu)
	ipam := o.Object("ipam")
	ipam.String("type", &kind)
	ipam.String("dataDir", &dir)
	n := 0
	ipam.Objects("routes", func(*Object) { n++ })
	if bridge != "cni0" || kind != "host-local" || dir != "default" || mtu != 1500 || n != 1 || o.Err() != nil {
		t.Errorf("got %q %q %q %d, %d routes, %v", bridge, kind, dir, mtu, n, o.Err())
	}
}

func TestLenientLeavesTheStrictOneAlone(t *testing.T) {
	strict := parse(t, `{"mtu": "x"}`)
	strict.Lenient().Int("mtu", new(int))
	if strict.Err() != nil {
		t.Error(strict.Err())
	}
	strict.Int("mtu", new(int))
	if strict.Err() == nil {
		t.Error("the strict object became lenient")
	}
}

func TestFirstErrorStays(t *testing.T) {
	o := parse(t, `{"a": 1, "b": 2}`)
	o.Object("none").Fail("c", "something", "nothing")
	o.String("a", new(string))
	if want := `key "none.c": want something, got nothing`; o.Err() == nil || o.Err().Error() != want {
		t.Errorf("error %v, want %s", o.Err(), want)
	}
	if p := o.Object("none").Path("d"); p != "none.d" {
		t.Errorf("Path = %s", p)
	}
}

func TestTrueKeys(t *testing.T) {
	o := parse(t, `{"capabilities": {"b": true, "a": false, "none": null, "B": true}}`)
	if got, want := o.Object("capabilities").TrueKeys(), []string{"b", "B"}; !slices.Equal(got, want) || o.Err() != nil {
		t.Errorf("got %v, want %v, error %v", got, want, o.Err())
	}
	wrong := parse(t, `{"capabilities": {"mac": "yes"}}`)
	if got := append(o.Object("absent").TrueKeys(), wrong.Object("capabilities").TrueKeys()...); len(got) > 0 {
		t.Errorf("keys of nothing, or with another type: %v", got)
	}
	if want := `key "capabilities.mac": want true or false, got the string "yes"`; wrong.Err() == nil || wrong.Err().Error() != want {
		t.Errorf("error %v, want %s", wrong.Err(), want)
	}
}
