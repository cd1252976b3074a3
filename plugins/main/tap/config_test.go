package tap

import (
	"math"
	"testing"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// FuzzParse makes sure that no configuration panics, and that what is taken is within bounds.
func FuzzParse(f *testing.F) {
	f.Add(`{"multiQueue":true,"owner":1000,"group":0,"mtu":1400,"mac":"02:00:00:00:00:01","bridge":"br0"}`, "MAC=02:00:00:00:00:02")
	f.Add(`{"owner":4294967295,"group":-1,"selinuxContext":"x"}`, "IgnoreUnknown=1;X=y")
	f.Fuzz(func(t *testing.T, text, args string) {
		o, err := conf.Parse([]byte(text))
		if err != nil {
			return
		}
		c, err := parse(&plugin.Request{Config: o, Args: args})
		if err != nil {
			if plugin.AsError(err).Msg == "" {
				t.Errorf("an error without a message for %q", text)
			}
			return
		}
		for _, id := range []*int{c.owner, c.group} {
			if id != nil && (*id < 0 || *id >= math.MaxUint32) {
				t.Errorf("%q gives the user or group %d", text, *id)
			}
		}
	})
}
