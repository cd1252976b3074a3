package netlab

import (
	"os/exec"
	"testing"
)

// Build runs a compiler, in the network the test process came from: the Go tool may have modules to download. Nothing
// else is to be run so.
func Build(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if out, err := onMachineNetwork(cmd); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}
