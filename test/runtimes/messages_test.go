package runtimes

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/messagetest"
)

// TestMessages finds in the source of the runtimes that tests have what the table of cnictl explain says that they print.
func TestMessages(t *testing.T) {
	const root = "../.."
	messages, sources := messagetest.Table(t, root)
	texts := map[string][]messagetest.Text{}
	for of, s := range sources {
		if strings.HasPrefix(s.In, "test/") {
			texts[of] = s.Here(t, root)
		}
	}
	if n := messagetest.Log(t, messagetest.Hold(t, messages, texts)); n < 10 {
		t.Errorf("only %d texts were found", n)
	}
}
