package log

import (
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// TestStreamed has the columns of calls below each other, whatever is in them.
func TestStreamed(t *testing.T) {
	text.DisableColors()
	c := calllog.Call{Verb: "ADD", Plugin: "bridge", Key: plugin.Key{Network: "demo", ContainerID: "web", IfName: "eth0"}, Addresses: []string{"10.88.0.7/24"}}
	d := c
	d.Pod, d.Plugin, d.Error = "default/a-pod-with-a-long-name", "tuning", &types.Error{Code: 7, Msg: "no"}
	for _, wide := range []bool{false, true} {
		one, two := streamed(&c, wide), streamed(&d, wide)
		if strings.Index(one, "demo") != strings.Index(two, "demo") || !strings.HasSuffix(one, "  10.88.0.7/24") || !strings.HasSuffix(two, "  error 7: no") {
			t.Errorf("\n%s\n%s", one, two)
		}
	}
}
