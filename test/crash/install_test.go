//go:build amd64

package crash

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/cnibox/cnibox/test/crash/tracer"
	"github.com/cnibox/cnibox/test/netlab"
)

// TestInstall kills an install, and one over it, at each system call that changes something: no name of a plugin ever leads to nothing, each that is there
// can be executed, and the next install completes it.
func TestInstall(t *testing.T) {
	t.Parallel()
	for _, link := range []string{"stub", "copy"} {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			host := netlab.NewHost(t)
			install := []string{netlab.Cnictl(t), "install", "--dir", netlab.PluginDir, "--from", netlab.Cnibox(t), "--link", link, "--only", "bridge,portmap"}
			for at := 1; ; at++ {
				cmd := host.Command("/proc/self/exe", install...)
				cmd.Env = append(os.Environ(), atEnv+"="+strconv.Itoa(at))
				err := host.Run(cmd)
				var exit *exec.ExitError
				if err == nil {
					if t.Logf("killed at %d calls", at-1); at < 5 {
						t.Error("the tracer saw no call that changes something")
					}
					return
				}
				if !errors.As(err, &exit) || exit.ExitCode() != tracer.Killed {
					t.Fatal(err)
				}
				const look = `cd "$0" 2>/dev/null || exit 0; for f in *; do [ "$f" = '*' ] || [ -x $f ] || echo $f; done` // -x is of what a link leads to
				if broken := host.MustRun(t, "sh", "-c", look, netlab.PluginDir); broken != "" {
					t.Errorf("killed at call %d, these can't be executed: %s", at, broken)
				}
				if at%2 == 0 { // the next one is over a whole one
					host.MustRun(t, install[0], install[1:]...)
					host.MustRun(t, "sh", "-ec", `cd "$0"; test -x bridge; test -x portmap`, netlab.PluginDir)
				} else {
					host.MustRun(t, "rm", "-rf", netlab.PluginDir)
				}
			}
		})
	}
}
