package doctor

import (
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// TestRestartFlannel names no unit that a stranger's process is called by.
func TestRestartFlannel(t *testing.T) {
	usual := (&subject{}).restartFlannel(nil).String()
	for _, test := range []struct {
		process node.Process
		want    string
	}{
		{node.Process{Name: "k3s-server", OfNode: true}, "systemctl restart k3s"},
		{node.Process{Name: "k3s-agent", OfNode: true}, "systemctl restart k3s-agent"},
		{node.Process{Name: "k3s-server"}, usual},
		{node.Process{Name: "k3s-;reboot", OfNode: true}, usual},
	} {
		s := &subject{processes: []node.Process{test.process}}
		if got := s.restartFlannel(nil).String(); got != test.want {
			t.Errorf("%+v: %s, want %s", test.process, got, test.want)
		}
	}
}
