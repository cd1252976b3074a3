package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
