package conf

import (
	"errors"
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
	const noJSON = "not valid JSON"
	for text, want := range map[string]string{
		"": "empty", " \n": "empty", "bridge": noJSON, `[]`: "not a JSON object but a list", `"demo"`: `not a JSON object but the string "demo"`,
		`7`: "not a JSON object but the number 7", `null`: "not a JSON object but null", `{"a": t` + strings.Repeat("é", 1<<20): noJSON,
		// Nested this deep a document once would have ended the process: a stack that overflows can't be recovered from.
		`{"ipam":` + strings.Repeat("[", 4<<20): noJSON, `{"ipam":` + strings.Repeat(`{"a":`, 4<<20): noJSON,
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
			t.Errorf("Parse(%.100q): %.400v, want it to contain %q", text, err, want)
		}
	}
}

func TestKeysMatchInAnyCase(t *testing.T) {
	for text, want := range map[string]string{
		`{"ISGATEWAY": "b", "isGateway": "a", "isgateway": 7}`: "a", // the exact one wins
		`{"isgateway": "a", "ISGATEWAY": "b"}`:                 "b",
		`{"isGateway": null, "ISGATEWAY": "b"}`:                "unset",
		`{"isGateway": "a", "isGateway": null}`:                "unset",
		`{"is\u0047ateway": "a"}`:                              "a",
		`{"isgateways": "a"}`:                                  "unset",
		`{"isGateway": ""}`:                                    "",
	} {
		o, got := parse(t, text), "unset"
		o.String("isGateway", &got)
		if got != want || o.Err() != nil || o.Has("isGateway") != (want != "unset") {
			t.Errorf("%s: got %q, %v, error %v; want %q", text, got, o.Has("isGateway"), o.Err(), want)
		}
	}
}

func TestOptionalValues(t *testing.T) {
	o := parse(t, `{"no": false, "zero": 0, "empty": []}`)
	var no, noBool *bool
	o.OptionalBool("no", &no)
	o.OptionalBool("absent", &noBool)
	var zero, noInt *int
	o.OptionalInt("zero", &zero)
	o.OptionalInt("absent", &noInt)
	var empty, noList []string
	o.Strings("empty", &empty)
	o.Strings("absent", &noList)
	if no == nil || *no || noBool != nil || zero == nil || *zero != 0 || noInt != nil || empty == nil || noList != nil || o.Err() != nil {
		t.Errorf("got %v %v, %v %v, %v %v, error %v", no, noBool, zero, noInt, empty, noList, o.Err())
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
		if s != "unset" || e.Keys() != nil || e.Has("type") || o.Err() != nil {
			t.Errorf("%s: an empty object has something", key)
		}
	}
}

func TestMapsKeepOrderAndDuplicates(t *testing.T) {
	var got []string
	parse(t, `{"b": "1", "a": "2", "B": "3", "b": "4"}`).StringMap(func(k, v string) { got = append(got, k+"="+v) })
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
	{"keys that are true", `{"capabilities": {"mac": "yes"}}`, func(o *Object) { o.Object("capabilities").TrueKeys() },
		`key "capabilities.mac": want true or false, got the string "yes"`},
	{"a long value is cut", `{"mtu": "` + strings.Repeat("é", 100) + `"}`, func(o *Object) { o.Int("mtu", new(int)) },
		`key "mtu": want a whole number, got the string "` + strings.Repeat("é", 29) + "…"},
}

// A lenient object ignores them, and leaves the strict one alone.
func TestWrongTypeNamesTheKey(t *testing.T) {
	for _, tt := range wrongTypes {
		t.Run(tt.name, func(t *testing.T) {
			strict := parse(t, tt.text)
			lenient := strict.Lenient()
			tt.read(lenient)
			if err := errors.Join(lenient.Err(), strict.Err()); err != nil {
				t.Error(err)
			}
			tt.read(strict)
			if err := strict.Err(); err == nil || err.Error() != tt.want {
				t.Errorf("error %v\nwant  %s", err, tt.want)
			}
		})
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
	if got, want := append(o.Object("capabilities").TrueKeys(), o.Object("absent").TrueKeys()...), []string{"b", "B"}; !slices.Equal(got, want) || o.Err() != nil {
		t.Errorf("got %v, want %v, error %v", got, want, o.Err())
	}
}
