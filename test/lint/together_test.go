package lint

import (
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/lint"
)

const web = `{
  "cniVersion": "1.0.0",
  "name": "web",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "web0",
      "isGateway": true,
      "ipam": {
        "type": "host-local",
        "subnet": "10.88.0.0/24",
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    }
  ]
}
`

// TestTogether lints files whose mistake is what they are called, or that another one is beside them. It is in the last one.
func TestTogether(t *testing.T) {
	t.Parallel()
	with := func(changes ...string) string { return strings.NewReplacer(changes...).Replace(web) }
	for _, c := range []struct {
		what  string
		files []lint.Input
		line  int
		code  string
	}{
		{"one name twice", []lint.Input{{Name: "10-web.conflist", Text: []byte(web)},
			{Name: "20-web.conflist", Text: []byte(with("web0", "other0", "10.88", "10.89"))}}, 3, "network-name-twice"},
		{"one bridge, two gateways", []lint.Input{{Name: "10-web.conflist", Text: []byte(web)},
			{Name: "20-db.conflist", Text: []byte(with(`"web"`, `"db"`, "10.88", "10.89"))}}, 11, "bridge-shared"},
		{"one subnet twice", []lint.Input{{Name: "10-web.conflist", Text: []byte(web)},
			{Name: "20-db.conflist", Text: []byte(with(`"web"`, `"db"`, "web0", "db0"))}}, 11, "subnets-overlap"},
		{"a subnet in another", []lint.Input{{Name: "10-web.conflist", Text: []byte(web)},
			{Name: "20-db.conflist", Text: []byte(with(`"web"`, `"db"`, "web0", "db0", "10.88.0.0/24", "10.88.0.0/16"))}}, 11, "subnets-overlap"},
		{"a list that is called .conf", []lint.Input{{Name: "10-web.conf", Text: []byte(web)}}, 4, "wrong-extension"},
		{"an empty file", []lint.Input{{Name: "10-web.conflist", Text: nil}}, 1, "not-json"},
		{"a file of spaces", []lint.Input{{Name: "10-web.conflist", Text: []byte("\n\n  \n")}}, 1, "not-json"},
		{"a byte order mark", []lint.Input{{Name: "10-web.conflist", Text: []byte("\xef\xbb\xbf" + web)}}, 1, "not-json"},
		{"a list alone", []lint.Input{{Name: "10-web.conflist", Text: []byte("[" + web + "]")}}, 1, "not-json"},
		{"YAML", []lint.Input{{Name: "10-web.conflist", Text: []byte("cniVersion: 1.0.0\nname: web\n")}}, 1, "not-json"},
		{"half of a file", []lint.Input{{Name: "10-web.conflist", Text: []byte(web[:200])}}, 11, "not-json"},
	} {
		findings := lint.Files(c.files, options)
		last := c.files[len(c.files)-1].Name
		if !slices.ContainsFunc(findings, func(f lint.Finding) bool {
			return f.File == last && f.Line == c.line && f.Code == c.code && f.Severity != finding.Info
		}) {
			t.Errorf("%s: want %s on line %d of %s, got\n%s", c.what, c.code, c.line, last, list(findings))
		}
	}
	if findings := lint.Text("10-web.conflist", []byte(web), options); len(findings) > 0 {
		t.Errorf("the file has a mistake before one is made:\n%s", list(findings))
	}
}
