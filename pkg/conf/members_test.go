package conf

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMembersCompose(t *testing.T) {
	tests := []struct {
		name, text string
		change     func(Members) Members
		want       string
	}{
		{"nothing", `{}`, nil, `{}`},
		{"as it is", `{"b": 1.50, "a": [true, null, {"x": "y"}], "b": ""}`, nil, `{"b":1.50,"a":[true,null,{"x":"y"}],"b":""}`},
		{"set a new key", `{"a": 1}`, func(m Members) Members { return m.Set("b", []byte("2")) }, `{"a":1,"b":2}`},
		{"replace each of a key", `{"a": 1, "b": 2, "a": 3}`, func(m Members) Members { return m.Set("a", []byte("4")) }, `{"b":2,"a":4}`},
		{"another case stays in front", `{"NAME": 1}`, func(m Members) Members { return m.Set("name", []byte("2")) }, `{"NAME":1,"name":2}`},
		{"escapes", `{"q\"\\\u0001\n": "\"\\\/\b\u0007\u000b\t\r\u2028\ud83d\ude00\udb40\udc01"}`, nil,
			"{\"q\\\"\\\\\\u0001\\n\":\"\\\"\\\\/\\u0008\\u0007\\u000b\\t\\u000d\u2028😀\U000e0001\"}"},
		{"no UTF-8", "{\"a\": \"\xff\"}", nil, "{\"a\":\"\ufffd\"}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := parse(t, tt.text).Members()
			before := string(m.JSON())
			if tt.change == nil {
				tt.change = func(m Members) Members { return m }
			}
			if got := string(tt.change(m).JSON()); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if after := string(m.JSON()); after != before {
				t.Errorf("the members themselves became %s", after)
			}
		})
	}
}

// What was read before is written as well as what was not.
func TestRawOfWhatWasRead(t *testing.T) {
	const text = `{"a\u0001":"\u0001\u007f\ud83d\ude00\"\udb40\udc01"}`
	o := parse(t, `{"in": `+text+`}`)
	in := o.Object("in")
	in.StringMap(func(string, string) {})
	if err := o.Err(); err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(o.Raw("in"), &got); err != nil {
		t.Fatalf("%v: %s", err, o.Raw("in"))
	}
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestMembersOfNothing(t *testing.T) {
	o := parse(t, `{}`).Object("absent")
	o.BoolMap(func(string, bool) { t.Error("an entry of nothing") })
	if m := o.Members(); m != nil {
		t.Errorf("Members = %v", m)
	}
}

func TestBoolMap(t *testing.T) {
	o := parse(t, `{"capabilities": {"b": true, "a": false, "none": null, "b": false}}`)
	var got []string
	o.Object("capabilities").BoolMap(func(key string, value bool) {
		if value {
			key += "!"
		}
		got = append(got, key)
	})
	if diff := cmp.Diff([]string{"b!", "a", "b"}, got); diff != "" || o.Err() != nil {
		t.Errorf("-want +got:\n%s%v", diff, o.Err())
	}
	wrong := parse(t, `{"capabilities": {"mac": "yes"}}`)
	wrong.Object("capabilities").BoolMap(func(string, bool) { t.Error("an entry of a wrong type") })
	if want := `key "capabilities.mac": want true or false, got the string "yes"`; wrong.Err() == nil || wrong.Err().Error() != want {
		t.Errorf("error %v, want %s", wrong.Err(), want)
	}
}

// FuzzMembers takes any object apart and composes it again: the same to
// whoever reads it, and valid even where fastjson takes what is not.
func FuzzMembers(f *testing.F) {
	for _, seed := range []string{
		`{"name":"demo","plugins":[{"type":"bridge","ipam":{}},{"type":"portmap","capabilities":{"portMappings":true}}]}`,
		`{"a\u0001":"\u0001\"","b":[1e3,-0.5,null,true,[]],"":{}}`, "{\"a\":\"\x01\\n\"}", "{\"a\":\"\xff\"}", `{"a":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := Parse(data)
		if err != nil {
			return
		}
		text := o.Members().JSON()
		var got any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%q became %q: %v", data, text, err)
		}
		var want any
		if json.Unmarshal(data, &want) != nil || !comparable(data) {
			return
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s\n-want +got:\n%s", data, diff)
		}
	})
}
