package install

import (
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// Tests mount filesystems, in a mount namespace of their own.
func TestMain(m *testing.M) { netlab.Main(m) }
