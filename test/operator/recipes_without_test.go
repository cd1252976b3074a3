package operator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestRecipesWithout leaves out what a recipe is about: then the page's commands do not print what they print with it. So they show what the
// keys do.
func TestRecipesWithout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		page, title, with string
		keys              []string
	}{
		{"published-port", "Try it", "hello, 192.0.2.254", []string{`"portMappings": true`}},
		{"two-networks", "Try it", "net1 answers", []string{`"type": "sbr"`}},
		{"isolation", "Networks apart", "red1 does not reach blue1", []string{`"ingressPolicy": "same-bridge"`}},
		{"isolation", "Containers apart", "guest1 does not reach guest2", []string{`"portIsolation": true,`, `"ingressPolicy": "isolated"`}},
		{"isolation", "Containers apart", "nor by the gateway", []string{`"ingressPolicy": "isolated"`}},
		{"isolation", "Containers apart", "guest1 reaches nobody", []string{`"macspoofchk": true,`}},
		{"vlans", "VLANs of a bridge", "red1 does not reach blue1", []string{`"vlan": 200`}},
		{"limits", "Try it", "the container does not", []string{`"ingressRate": 8000000`}},
		{"limits", "Try it", "4 seconds are not enough", []string{`"egressRate": 4000000`}},
	} {
		t.Run(c.page+"/"+c.with, func(t *testing.T) {
			t.Parallel()
			page := read(t, "../../docs/recipes/"+c.page+".md")
			networks := networksOf(page)
			for _, key := range c.keys {
				found := false
				for name, conflist := range networks {
					found = found || strings.Contains(conflist, key)
					networks[name] = strings.ReplaceAll(conflist, key, without[key])
				}
				if !found {
					t.Errorf("the page has no %s", key)
				}
			}
			try := func() error {
				var printed, shown strings.Builder
				for _, p := range partsOf(page, "\n###? ") {
					if p.title != c.title {
						continue
					}
					k := newKitchen(t, networks, p)
					for _, s := range p.steps {
						shown.WriteString(s.prints)
						printed.WriteString(k.do(s))
					}
				}
				if !strings.Contains(shown.String(), c.with) {
					t.Fatalf("the page does not show %q", c.with)
				}
				if strings.Contains(printed.String(), c.with) {
					return fmt.Errorf("without the key it is the same:\n%s", &printed)
				}
				return nil
			}
			if c.page == "limits" { // a busy machine may be no faster without one
				netlab.Eventually(t, try)
			} else if err := try(); err != nil {
				t.Error(err)
			}
		})
	}
}

// without is what takes the place of a key that can't just be left out.
var without = map[string]string{
	`"vlan": 200`:                    `"vlan": 100`,
	`"portMappings": true`:           `"portMappings": false`,
	`"type": "sbr"`:                  `"type": "tuning"`,
	`"ingressRate": 8000000`:         `"ingressRate": 80000000000`,
	`"egressRate": 4000000`:          `"egressRate": 40000000000`,
	`"ingressPolicy": "same-bridge"`: `"ingressPolicy": "open"`,
	`"ingressPolicy": "isolated"`:    `"ingressPolicy": "open"`,
}
