package flannel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// FuzzParseSubnet makes sure that any text can be read, and that what is whole reads the same when it is written by the daemon.
func FuzzParseSubnet(f *testing.F) {
	for _, text := range []string{
		"",
		"FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n",
		"FLANNEL_NETWORK=10.244.0.0/16,10.245.0.1/16,10.244.7.0/16\r\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_IPV6_NETWORK=fd00::/48\nFLANNEL_IPV6_SUBNET=fd00:0:0:3::1/64\nFLANNEL_MTU=0\nFLANNEL_IPMASQ=no",
		"FLANNEL_MTU\nFLANNEL_MTU=-1\nFLANNEL_IPMASQ=\n=\n==\nFLANNEL_NETWORK=,,\nFLANNEL_SUBNET=::ffff:1.2.3.4/120,x",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, wrong := parseSubnet(text)
		if wrong == nil && (s.networks == nil || s.own == nil || s.mtu == nil || s.masquerades == nil) {
			t.Fatalf("%q is whole, and lacks something: %+v", text, s)
		}
		for _, p := range slices.Concat(s.networks, s.own) {
			if p != p.Masked() {
				t.Errorf("%v has bits behind its prefix", p)
			}
		}
		if wrong != nil {
			return
		}
		again, wrong := parseSubnet(written(s))
		if wrong != nil || written(again) != written(s) {
			t.Errorf("%q is written as %q, and reads as %q, wrong %v", text, written(s), written(again), wrong)
		}
	})
}

// written returns the lines that the daemon would write.
func written(s subnet) string {
	join := strings.NewReplacer("[", "", "]", "", " ", ",")
	return fmt.Sprintf("FLANNEL_NETWORK=%s\nFLANNEL_SUBNET=%s\nFLANNEL_MTU=%d\nFLANNEL_IPMASQ=%t\n",
		join.Replace(fmt.Sprint(s.networks)), join.Replace(fmt.Sprint(s.own)), *s.mtu, *s.masquerades)
}
