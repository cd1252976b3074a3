package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// TestSubnetEnv reads flannel's file, of which each line is needed.
func TestSubnetEnv(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subnet.env")
	read := func(text string) (string, error) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		env, err := readSubnetEnv(path)
		return fmt.Sprint(env.own, env.mtu), err
	}
	const whole = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	if got, err := read(whole); got != "[10.244.3.1/24] 1450" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := read(strings.Replace(strings.ReplaceAll(whole, "NETWORK", "IPV6_NETWORK"), "SUBNET=10.244.3.1/24", "IPV6_SUBNET=fd00::1/64,fd01::1/64", 1)); got != "[fd00::1/64 fd01::1/64] 1450" || err != nil {
		t.Errorf("of IPv6: got %s, %v", got, err)
	}
	for line := range strings.Lines(whole) {
		if got, err := read(strings.Replace(whole, line, "", 1)); err == nil {
			t.Errorf("without %s: %s", line, got)
		}
	}
}

// TestRestartFlannel names no unit that a stranger's process is called by.
func TestRestartFlannel(t *testing.T) {
	usual := (&subject{}).restartFlannel().String()
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
		if got := s.restartFlannel().String(); got != test.want {
			t.Errorf("%+v: %s, want %s", test.process, got, test.want)
		}
	}
}
