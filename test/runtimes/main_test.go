package runtimes

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// The test binary plays several parts, in processes of its own:
//
//	go test's process   builds criclient, starts the tests, removes what they leave in the control groups, writes the page
//	the tests
//	observer            a CNI plugin that the runtimes call
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == observerName:
		observe()
	case os.Getenv(preparedEnv) != "":
		netlab.Main(m)
	default:
		flag.Parse()
		code, err := runPrepared()
		if err != nil {
			fmt.Fprintln(os.Stderr, "runtimes:", err)
			code = 1
		}
		os.Exit(code)
	}
}

// criclientEnv tells the tests where criclient is. It is built before they run, since they have no network to fetch its
// modules through.
const criclientEnv = "RUNTIMES_CRICLIENT"

func buildCriclient(dir string) error {
	path := filepath.Join(dir, "criclient")
	cmd := exec.Command("go", "build", "-C", "criclient", "-trimpath", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build criclient: %w\n%s", err, out)
	}
	return os.Setenv(criclientEnv, path)
}
