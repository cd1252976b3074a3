package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
)

func TestAsError(t *testing.T) {
	inner := &Error{Code: CodeTryAgainLater, Msg: "no address left", Details: "add a range"}
	plain := &Error{Code: CodeInvalidNetns, Msg: "gone"}
	wrongKey := &conf.Error{Path: "ipam.type", Want: "a string", Got: "the number 7"}
	tests := []struct {
		name string
		err  error
		want Error
	}{
		{"an Error", inner, *inner},
		{"wrapped", fmt.Errorf("ADD: ipam: %w", inner), Error{CodeTryAgainLater, "ADD: ipam: no address left", "add a range"}},
		{"wrapped twice", fmt.Errorf("a: %w", fmt.Errorf("b: %w", inner)), Error{CodeTryAgainLater, "a: b: no address left", "add a range"}},
		{"wrapped, no details", fmt.Errorf("ADD: %w", plain), Error{CodeInvalidNetns, "ADD: gone", ""}},
		{"wrapped with words behind", fmt.Errorf("ADD: %w (again)", inner), Error{CodeTryAgainLater, "ADD: no address left; add a range (again)", ""}},
		{"joined", errors.Join(errors.New("first"), inner), Error{CodeTryAgainLater, "first\nno address left", "add a range"}},
		{"joined in front", errors.Join(inner, errors.New("second")), Error{CodeTryAgainLater, "no address left; add a range\nsecond", ""}},
		{"any other", errors.New("file exists"), Error{CodeInternal, "file exists", ""}},
		{"a key's", wrongKey, Error{CodeInvalidConfig, `key "ipam.type": want a string, got the number 7`, "correct that key in the network's configuration"}},
		{"a key's, wrapped", fmt.Errorf("host-local: %w", wrongKey),
			Error{CodeInvalidConfig, `host-local: key "ipam.type": want a string, got the number 7`, "correct that key in the network's configuration"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := AsError(tt.err); *got != tt.want {
				t.Errorf("got  %#v\nwant %#v", *got, tt.want)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	if got := Errorf("a %d", 1).WithDetails("b %d", 2).Error(); got != "a 1; b 2" {
		t.Errorf("%q", got)
	}
	if got := Errorf("a").Error(); got != "a" {
		t.Errorf("%q", got)
	}
}

func TestWithDetailsMakesACopy(t *testing.T) {
	e := Errorf("a")
	_ = e.WithDetails("b")
	if e.Details != "" {
		t.Error("the error itself was changed")
	}
}

func TestErrorJSONIsReadByTheField(t *testing.T) {
	for _, want := range []Error{
		{CodeInvalidConfig, `quotes " and \ and /`, "line\nend\ttab\r\x01é\u2028😀"},
		{CodeInternal, "broken \xff\xfe bytes", ""},
		{0, "", ""},
	} {
		doc := want.JSON("0.4.0")
		var got types.Error
		if err := json.Unmarshal(doc, &got); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		clean := func(s string) string { return string([]rune(s)) }
		if got.Code != uint(want.Code) || got.Msg != clean(want.Msg) || got.Details != clean(want.Details) {
			t.Errorf("%s\ngot  %#v\nwant %#v", doc, got, want)
		}
		var version struct{ CNIVersion string }
		if err := json.Unmarshal(doc, &version); err != nil || version.CNIVersion != "0.4.0" {
			t.Errorf("%s: version %q, %v", doc, version.CNIVersion, err)
		}
	}
}

func TestErrorJSONLooksLikeThis(t *testing.T) {
	const want = `{
    "cniVersion": "1.1.0",
    "code": 7,
    "msg": "missing network name",
    "details": "give it one"
}`
	if got := string(ConfigError("give it one", "missing network %s", "name").JSON("1.1.0")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
