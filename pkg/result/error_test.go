package result

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/cnibox/cnibox/pkg/plugin"
)

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
	if got := string(PrintError(plugin.AsError(plugin.ConfigError("give it one", "missing network %s", "name")), "1.1.0")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Values that an error shows can be of any size, and need not be text.
func TestErrorsAreCut(t *testing.T) {
	long := strings.Repeat("ä", 1<<20)
	doc := PrintError(plugin.AsError(plugin.ConfigError(long, "%s", long)), "1.1.0")
	var got struct{ Msg, Details string }
	if err := json.Unmarshal(doc, &got); err != nil || len(doc) > 10_000 || !strings.HasSuffix(got.Msg, "more)") || !strings.HasSuffix(got.Details, "more)") {
		t.Errorf("%d bytes, %v: %.100s", len(doc), err, doc)
	}
}

func TestVersionJSONIsReadByTheField(t *testing.T) {
	for _, oldest := range []string{"", "0.3.0", "0.4.0"} {
		info, err := (&version.PluginDecoder{}).Decode(PrintVersions(oldest))
		if err != nil {
			t.Fatalf("%s: %v", PrintVersions(oldest), err)
		}
		if !slices.Equal(info.SupportedVersions(), plugin.Versions(oldest)) {
			t.Errorf("oldest %q: %q, want %q", oldest, info.SupportedVersions(), plugin.Versions(oldest))
		}
		if !json.Valid(PrintVersions(oldest)) {
			t.Errorf("no JSON: %s", PrintVersions(oldest))
		}
	}
}
