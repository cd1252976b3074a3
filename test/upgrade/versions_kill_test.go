//go:build amd64

package upgrade

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/crash/tracer"
	"github.com/cnibox/cnibox/test/netlab"
)

// killAtEnv has the number of the call at which the command in the arguments is to be killed.
const killAtEnv = "UPGRADE_KILL_AT"

func init() {
	if at, err := strconv.Atoi(os.Getenv(killAtEnv)); err == nil {
		os.Exit(tracer.Run(at, os.Args[1], os.Args[2:]...))
	}
}

// TestVersionsKill kills an ADD and a DEL of the next version at each call that changes something, while the rules of both are there, or those of the old one alone.
func TestVersionsKill(t *testing.T) {
	next := nextVersion(t)
	for _, verb := range []string{"add", "del"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			v := newVersions(t, next)
			a, b := v.tenantA(), v.tenantB()
			v.add(a, b)
			e := v.tenantE()
			e.rt.CapabilityArgs = nil
			v.Feed(v, e.network(e.list), "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/listed.conflist")
			points := 0
			for at := 1; ; at++ {
				if netlab.LeftOut(t, at, 4) {
					continue
				}
				v.useOld() // makes its rules, if they are not there
				if _, err := v.AddList(e.network(e.list), e.rt); err != nil {
					t.Fatal(err)
				}
				if verb == "add" {
					if err := v.DelList(e.network(e.list), e.rt); err != nil {
						t.Fatal(err)
					}
				}
				v.useNext()
				where := v.killAt(verb, at, e)
				if where == "" {
					break
				}
				points++
				v.did("%s", where)
				if err := v.DelList(e.network(e.list), e.rt); err != nil {
					t.Errorf("DEL after %s: %v", where, err)
				}
				v.did("DEL after %s", where)
				v.gone(e)
			}
			if points == 0 {
				t.Errorf("%s was never killed: the tracer saw no call that changes something", verb)
			}
			t.Logf("%s was killed at %d points", verb, points)
			_ = v.DelList(e.network(e.list), e.rt)
			if _, err := v.AddList(e.network(e.list), e.rt); err != nil {
				t.Fatal(err)
			}
			v.has("_v2")
			if printed, ok := v.cnictl("repair"); !ok {
				t.Errorf("cnictl repair: %s", printed)
			}
			v.did("repair")
			v.fine(a, b)
			if err := v.DelList(e.network(e.list), e.rt); err != nil {
				t.Fatal(err)
			}
			v.del(a, b)
			v.empty()
		})
	}
}

// killAt has cnictl call a verb for a tenant of the network listed, and kills it before the n-th call that changes something, which it returns; "" if
// there are fewer.
func (v *versions) killAt(verb string, n int, x *tenant) (where string) {
	v.Helper()
	cmd := v.Command("/proc/self/exe", v.now+"/cnictl", verb, "listed", x.pod.Path(), "--id", x.pod.ID)
	cmd.Env = append(os.Environ(), killAtEnv+"="+strconv.Itoa(n))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err := v.Run(cmd)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &exit) && exit.ExitCode() == tracer.Killed:
		return fmt.Sprintf("%s %d: %s", verb, n, strings.TrimSpace(stderr.String()))
	}
	v.Fatalf("trace %s: %v: %s", verb, err, stderr.String())
	return ""
}
