package lint

import (
	"testing"

	"github.com/cnibox/cnibox/test/pagetest"
)

func TestCodes(t *testing.T) { pagetest.Codes(t, Codes(), "../../../docs/operate/lint.md", "Codes") }
