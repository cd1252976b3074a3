package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
)

func TestAsError(t *testing.T) {
	inner := &types.Error{Code: types.ErrTryAgainLater, Msg: "no address left", Details: "add a range"}
	plain := &types.Error{Code: types.ErrInvalidNetNS, Msg: "gone"}
	wrongKey := &conf.Error{Path: "ipam.type", Want: "a string", Got: "the number 7"}
	tests := []struct {
		name string
		err  error
		want types.Error
	}{
		{"an Error", inner, *inner},
		{"wrapped", fmt.Errorf("ADD: ipam: %w", inner), types.Error{Code: types.ErrTryAgainLater, Msg: "ADD: ipam: no address left", Details: "add a range"}},
		{"wrapped twice", fmt.Errorf("a: %w", fmt.Errorf("b: %w", inner)), types.Error{Code: types.ErrTryAgainLater, Msg: "a: b: no address left", Details: "add a range"}},
		{"wrapped, no details", fmt.Errorf("ADD: %w", plain), types.Error{Code: types.ErrInvalidNetNS, Msg: "ADD: gone", Details: ""}},
		{"wrapped with words behind", fmt.Errorf("ADD: %w (again)", inner), types.Error{Code: types.ErrTryAgainLater, Msg: "ADD: no address left; add a range (again)", Details: ""}},
		{"joined", errors.Join(errors.New("first"), inner), types.Error{Code: types.ErrTryAgainLater, Msg: "first\nno address left", Details: "add a range"}},
		{"joined in front", errors.Join(inner, errors.New("second")), types.Error{Code: types.ErrTryAgainLater, Msg: "no address left; add a range\nsecond", Details: ""}},
		{"any other", errors.New("file exists"), types.Error{Code: types.ErrInternal, Msg: "file exists", Details: ""}},
		{"a key's", wrongKey, types.Error{Code: types.ErrInvalidNetworkConfig, Msg: `key "ipam.type": want a string, got the number 7`, Details: "correct that key in the network's configuration"}},
		{"a key's, wrapped", fmt.Errorf("host-local: %w", wrongKey),
			types.Error{Code: types.ErrInvalidNetworkConfig, Msg: `host-local: key "ipam.type": want a string, got the number 7`, Details: "correct that key in the network's configuration"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := AsError(tt.err); *got != tt.want {
				t.Errorf("got  %#v\nwant %#v", *got, tt.want)
			}
		})
	}
}

func TestErrorJSONIsReadByTheField(t *testing.T) {
	for _, want := range []types.Error{
		{Code: types.ErrInvalidNetworkConfig, Msg: `quotes " and \ and /`, Details: "line\nend\ttab\r\x01é\u2028😀"},
		{Code: types.ErrInternal, Msg: "broken \xff\xfe bytes", Details: ""},
		{Code: 0, Msg: "", Details: ""},
	} {
		doc := PrintError(&want, "0.4.0")
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
	if got := string(PrintError(ConfigError("give it one", "missing network %s", "name"), "1.1.0")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Values that an error shows can be of any size, and need not be text.
func TestErrorsAreCut(t *testing.T) {
	long := strings.Repeat("ä", 1<<20)
	doc := PrintError(ConfigError(long, "%s", long), "1.1.0")
	var got struct{ Msg, Details string }
	if err := json.Unmarshal(doc, &got); err != nil || len(doc) > 10_000 || !strings.HasSuffix(got.Msg, "more)") || !strings.HasSuffix(got.Details, "more)") {
		t.Errorf("%d bytes, %v: %.100s", len(doc), err, doc)
	}
}
