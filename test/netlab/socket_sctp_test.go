package netlab

import (
	"strings"
	"testing"
)

func TestSCTP(t *testing.T) {
	Need(t, SCTP)
	t.Parallel()
	h := NewHost(t)
	a, b := h.NewPod(t, "a"), h.NewPod(t, "b")
	bridgePods(t, h, a, b)
	for server, client := range map[string]string{"10.1.0.3": "10.1.0.2", "fd00:1::3": "fd00:1::2"} {
		target := server + ":5000"
		if strings.Contains(server, ":") {
			target = "[" + server + "]:5000"
		}
		if got, err := a.DialSCTP(target, patience); err == nil || IsTimeout(err) {
			t.Errorf("SCTP to %s, where nobody listens: %q, %v, want a refusal", target, got, err)
		}
		b.ServeSCTP(t, target)
		if got, err := a.DialSCTP(target, patience); got != "b saw "+client {
			t.Errorf("SCTP to %s: %q, %v, want %q", target, got, err, "b saw "+client)
		}
	}
}
