package conf

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJSON(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"nothing", `{}`, `{}`},
		{"as it is", `{"b": 1.50, "a": [true, null, {"x": "y"}], "b": ""}`, `{"b":1.50,"a":[true,null,{"x":"y"}],"b":""}`},
		{"escapes", `{"q\"\\\u0001\n": "\"\\\/\b\u0007\u000b\t\r\u2028\ud83d\ude00\udb40\udc01"}`,
			"{\"q\\\"\\\\\\u0001\\n\":\"\\\"\\\\/\\b\\u0007\\u000b\\t\\r\\u2028😀\U000e0001\"}"},
		{"no UTF-8", "{\"a\": \"\xff\"}", "{\"a\":\"\ufffd\"}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := parse(t, tt.text)
			for _, when := range []string{"first", "second"} {
				if got := string(o.JSON()); got != tt.want {
					t.Errorf("the %s time\ngot  %s\nwant %s", when, got, tt.want)
				}
			}
		})
	}
}

// FuzzJSON prints any object: the same to whoever reads it, also when it was read before, and valid even where fastjson takes what is not.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"name":"demo","plugins":[{"type":"bridge","ipam":{}},{"type":"portmap","capabilities":{"portMappings":true}}]}`,
		`{"a\u0001":"\u0001\"","b":[1e3,-0.5,null,true,[]],"":{}}`, "{\"a\":\"\x01\\n\"}", "{\"a\":\"\xff\"}", `{"a":"\ud800"}`,
		`{"a\u0001":"\u0001\u007f\ud83d\ude00\"\udb40\udc01"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := Parse(data)
		if err != nil {
			return
		}
		text := o.JSON()
		o.Lenient().StringMap(func(string, string) {})
		if again := o.JSON(); string(again) != string(text) {
			t.Fatalf("when it was read it became %q, before %q", again, text)
		}
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
