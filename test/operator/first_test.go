package operator

import (
	"testing"

	"github.com/cnibox/cnibox/test/pagetest"
)

// TestFirstScreen does what README.md and the manual's first page show, on a node with a container whose port is published, and expects what they say
// is printed.
func TestFirstScreen(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "docs/index.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			o.must("add", "demo", o.host.NewPod(t, "web").Path(), "--id", "web", "--publish", "8080:80")
			o.act(pagetest.Actions(t, "../../"+page))
		})
	}
}
