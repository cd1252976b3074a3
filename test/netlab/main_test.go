package netlab

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMain lets the test binary stand in for a CNI plugin when it is called by that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == fakePluginName {
		fakePlugin()
	}
	Main(m)
}
