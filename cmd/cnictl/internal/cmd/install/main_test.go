package install

import (
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// Tests install the built cnibox.
func TestMain(m *testing.M) { netlab.Main(m) }
