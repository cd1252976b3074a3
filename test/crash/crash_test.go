//go:build amd64

// Package crash kills the runtime and its plugins at each system call of an ADD or a DEL that changes something, and looks whether DEL
// then removes everything, and ADD works again. Without -all these are the networks that are always killed (networks_test.go); make crash
// kills all, here and in a guest.
//
//	go test ./test/crash -run 'TestKill/portmap' -args -all
package crash

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/crash/tracer"
	"github.com/cnibox/cnibox/test/netlab"
)

var allFlag = flag.Bool("all", false, "kill all networks, from all states of the node; else two networks")

// atEnv has the number of the call at which the command in the arguments is to be killed.
const atEnv = "CRASH_AT"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == standIn {
		os.Exit(answer())
	}
	if at, err := strconv.Atoi(os.Getenv(atEnv)); err == nil {
		os.Exit(tracer.Run(at, os.Args[1], os.Args[2:]...))
	}
	netlab.Main(m)
}

// The circumstances of a kill.
const (
	add, del = "add", "del" // what is killed

	warm = "warm" // others are attached to the network
	cold = "cold" // the node has never seen it

	nothing   = "nothing lost"
	result    = "result lost" // libcni's cache of it, before the DEL after
	namespace = "namespace lost"
)

func TestKill(t *testing.T) {
	for _, n := range networks {
		for _, c := range []circumstances{
			{add, warm, nothing}, {add, warm, namespace}, {add, cold, nothing}, {add, cold, namespace},
			{del, warm, nothing}, {del, warm, result}, {del, warm, namespace},
			{del, cold, nothing}, {del, cold, result}, {del, cold, namespace},
		} {
			if !*allFlag && (!n.always || c.node != warm || c.lost != nothing) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s/%s/%s", n.name, c.killed, c.node, strings.ReplaceAll(c.lost, " ", "-")), func(t *testing.T) {
				t.Parallel()
				for _, feature := range n.needs {
					netlab.Need(t, feature)
				}
				points, bad := n.kill(t, c)
				fmt.Printf("%-22s %s  %s  %-14s  points %3d  bad %d\n", n.name, c.killed, c.node, c.lost, points, bad)
			})
		}
	}
}

type circumstances struct{ killed, node, lost string }

// kill kills at one call after the other until there is none left.
func (n network) kill(t *testing.T, c circumstances) (points, bad int) {
	var s *scene
	var before, want []string // the states before and after an ADD and a DEL that nobody kills
	for at := 1; ; at++ {
		if netlab.LeftOut(t, at, 2) {
			continue
		}
		if s == nil || c.node == cold {
			s = n.scene(t, c)
		}
		if want == nil {
			before = s.state()
			s.must(add)
			s.must(del)
			want = s.state()
			if c.node == cold {
				s = n.scene(t, c)
			}
		}
		if c.killed == del {
			s.must(add)
		}
		where := s.killAt(c.killed, at)
		if where == "" {
			if points == 0 {
				t.Errorf("%s was never killed: the tracer saw no call that changes something", c.killed)
			}
			return points, bad
		}
		points++
		s.lose(c.lost)
		wrong := s.try(del)
		if c.lost == namespace {
			s.renew()
		}
		now := s.state()
		left := without(now, want, before)
		if c.node == cold && n.shared != nil {
			left = slices.DeleteFunc(left, n.shared.MatchString)
		}
		wrong = append(wrong, marked("left: ", left)...)
		if c.node == warm {
			wrong = append(wrong, marked("lost: ", without(want, now))...)
		}
		wrong = append(append(wrong, s.try(add)...), s.try(del)...)
		if !slices.Equal(now, want) { // or it is as after the first ADD
			now = s.state()
			wrong = append(wrong, marked("left after another ADD and DEL: ", without(now, want))...)
			wrong = append(wrong, marked("lost after another ADD and DEL: ", without(want, now))...)
		}
		if len(wrong) > 0 {
			bad++
			t.Errorf("%s:\n\t%s", where, strings.Join(wrong, "\n\t"))
			s, want = nil, nil
		}
	}
}

// TestCollect: whenever an ADD is killed, gc frees what it has taken once its namespace is gone, though no DEL comes.
func TestCollect(t *testing.T) {
	for _, n := range networks {
		if !*allFlag && n.name != "bridge" {
			continue
		}
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			for _, feature := range n.needs {
				netlab.Need(t, feature)
			}
			s := n.scene(t, circumstances{add, warm, namespace})
			s.must(add)
			s.must(del)
			want := s.state()
			for at := 1; ; at++ {
				if netlab.LeftOut(t, at, 2) {
					continue
				}
				where := s.killAt(add, at)
				if where == "" {
					break
				}
				s.lose(namespace)
				s.host.MustRun(s, "find", "/var/lib/cni", "-type", "f", "-exec", "touch", "-d", "5 minutes ago", "{}", "+") // gc spares what is young
				said := s.host.MustRun(s, netlab.Cnictl(s), "gc", "--apply")
				s.renew()
				if left := without(s.state(), want); len(left) > 0 {
					t.Fatalf("%s:\n\t%s\ngc has said:\n%s", where, strings.Join(left, "\n\t"), said)
				}
			}
		})
	}
}

// list returns the network's conflist.
func (n network) list() string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"lan","plugins":[%s]}`, n.plugins)
}

// scene is a node with a container that may be attached to the network.
type scene struct {
	testing.TB
	network
	host *netlab.Host
	pod  *netlab.Pod
}

func (n network) scene(t *testing.T, c circumstances) *scene {
	s := &scene{TB: t, network: n, host: netlab.NewHost(t)}
	s.host.OwnProcesses(t)
	s.host.InstallPlugins(t, "bridge", "ptp", "macvlan", "ipvlan", "vlan", "dummy", "host-device", "tap", "host-local", "dhcp", "tuning", "portmap",
		"firewall", "egress", "bandwidth", "sbr", "vrf", "dnsname", "flannel", "chain")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.host.InstallPlugin(t, standIn, self)
	s.host.Feed(t, n.list(), "sh", "-c", "mkdir /etc/cni/net.d && cat >/etc/cni/net.d/lan.conflist")
	s.host.Feed(t, n.device, "ip", "-batch", "-")
	if n.prepare != nil {
		n.prepare(t, s.host)
	}
	if c.node == warm {
		s.pod = s.host.NewPod(s, "other")
		s.must(add)
		if n.single {
			s.must(del)
		}
	}
	s.pod = s.host.NewPod(s, "web")
	return s
}

// try returns why a verb fails, if it does.
func (s *scene) try(verb string) (wrong []string) {
	caps := map[string]any{}
	if port := s.port(); port != 0 {
		caps["portMappings"] = []map[string]any{{"hostPort": port, "containerPort": 80, "protocol": "tcp"}}
	}
	var err error
	switch rt := s.pod.RuntimeConf(caps); verb {
	case add:
		_, err = s.host.AddList(s.list(), rt)
	case del:
		err = s.host.DelList(s.list(), rt)
	}
	if err != nil {
		wrong = append(wrong, fmt.Sprintf("%s fails: %v", verb, err))
	}
	return wrong
}

func (s *scene) must(verb string) {
	s.Helper()
	if wrong := s.try(verb); wrong != nil {
		s.Fatal(wrong)
	}
}

// port returns the port of the host that the container publishes, 0 if the network has none.
func (s *scene) port() int {
	switch {
	case !strings.Contains(s.plugins, "portMappings"):
		return 0
	case s.pod.Name() == "other":
		return 8081
	}
	return 8080
}

// killAt begins a verb and kills it before the n-th call that changes something, which it returns; "" if there are fewer.
func (s *scene) killAt(verb string, n int) (where string) {
	s.Helper()
	args := []string{netlab.Cnictl(s), verb, "lan", s.pod.Path(), "--id", s.pod.ID}
	if port := s.port(); port != 0 {
		args = append(args, "-p", fmt.Sprintf("%d:80", port))
	}
	cmd := s.host.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), atEnv+"="+strconv.Itoa(n))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err := s.host.Run(cmd)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &exit) && exit.ExitCode() == tracer.Killed:
		return fmt.Sprintf("%d: %s", n, strings.TrimSpace(stderr.String()))
	}
	s.Fatalf("trace %s: %v: %s", verb, err, stderr.String())
	return ""
}

// lose takes away what a runtime may not have any more when it calls DEL.
func (s *scene) lose(what string) {
	if what == namespace {
		s.pod.Delete(s)
	}
	if what != nothing {
		s.host.MustRun(s, "rm", "-f", netlab.CacheDir+"/results/lan-"+s.pod.ID+"-eth0")
	}
}

// renew brings back what has gone with the namespace.
func (s *scene) renew() {
	s.pod = s.host.NewPod(s, "web")
	if s.device != "" {
		s.host.Feed(s, s.device, "sh", "-c", "ip -force -batch - 2>/dev/null || true")
	}
}

var (
	// changing matches what is different in each namespace.
	changing = regexp.MustCompile(`\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b|net:\[\d+\]|\bveth[0-9a-f]{8}\b`)
	// furniture matches what plugins keep for themselves, and the rule that the kernel makes with the first VRF.
	furniture = regexp.MustCompile(`^node file (/run/cnibox|/var/lib/cni/networks/\.cnibox|/var/lib/cni/networks/lan/(lock|last_reserved)|/var/lib/cni/results )|` +
		`^container rule ipv[46] 1000:`)
)

// state describes the node and the container, but for its furniture.
func (s *scene) state() (lines []string) {
	for _, line := range slices.Concat(marked("node ", s.host.Snapshot(s).Lines("")), marked("container ", s.pod.Snapshot(s).Lines(""))) {
		if !furniture.MatchString(line) {
			lines = append(lines, changing.ReplaceAllString(line, "…"))
		}
	}
	return lines
}

func marked(mark string, lines []string) (list []string) {
	for _, line := range lines {
		list = append(list, mark+line)
	}
	return list
}

// without returns the lines that are in none of others as often.
func without(lines []string, others ...[]string) (rest []string) {
	count := func(line string, lines []string) (n int) {
		for _, l := range lines {
			if l == line {
				n++
			}
		}
		return n
	}
	for _, line := range lines {
		if !slices.ContainsFunc(others, func(other []string) bool { return count(line, other) >= count(line, lines) }) {
			rest = append(rest, line)
		}
	}
	return rest
}
