package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

const unitDir = "../../dist/systemd"

// unit reads a unit's file.
func unit(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(unitDir, name))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			values[key] = value
		}
	}
	return values
}

// analyze runs systemd-analyze where cnictl and the plugins are installed.
func analyze(t *testing.T, args ...string) (printed string, err error) {
	t.Helper()
	host := netlab.NewHost(t)
	host.InstallPlugins(t, "dhcp")
	host.MustRun(t, "mount", "-t", "tmpfs", "tmpfs", "/usr/local/bin")
	host.MustRun(t, "cp", netlab.Cnictl(t), "/usr/local/bin/cnictl")
	return host.Output(host.Command("sh", append([]string{"-c", `exec systemd-analyze "$@" 2>&1`, "sh"}, args...)...))
}

// TestUnitsAreValid: systemd understands every line of the units, and finds what they start.
func TestUnitsAreValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(unitDir + "/cnibox-*")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d units, error %v", len(files), err)
	}
	dir, args := t.TempDir(), []string{"verify", "--man=no"}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, strings.Replace(filepath.Base(f), "@.", "@nftables.", 1))
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	if printed, err := analyze(t, args...); err != nil || strings.Contains(printed, "cnibox-") {
		t.Errorf("error %v:\n%s", err, printed)
	}
}

// sandboxed are the units that run cnictl with few rights.
var sandboxed = []string{"cnibox-agent.service", "cnibox-repair.service", "cnibox-gc.service", "cnibox-metrics.service", "cnibox-etcd.service"}

// TestUnitsExposeLittle: by systemd's own measure, from 0 to 10, of which a service without any sandbox has 9.6.
func TestUnitsExposeLittle(t *testing.T) {
	t.Parallel()
	for _, name := range sandboxed {
		if printed, err := analyze(t, "security", "--offline=true", "--no-pager", "--threshold=43", must(filepath.Abs(filepath.Join(unitDir, name)))); err != nil {
			t.Errorf("%s: %v\n%s", name, err, printed)
		}
	}
}

func must(path string, err error) string {
	if err != nil {
		panic(err)
	}
	return path
}

// TestUnitsSeeTheNode: what is hidden from a program that judges what is gone would be gone for it.
func TestUnitsSeeTheNode(t *testing.T) {
	t.Parallel()
	for _, name := range sandboxed {
		u := unit(t, name)
		for _, key := range []string{"PrivateTmp", "ProtectProc", "PrivateNetwork", "InaccessiblePaths", "TemporaryFileSystem", "PrivateMounts", "PrivateUsers", "ProcSubset"} {
			if value, ok := u[key]; ok {
				t.Errorf("%s has %s=%s", name, key, value)
			}
		}
		if u["ProtectHome"] != "read-only" { // containers of users have their namespaces in /run/user
			t.Errorf("%s has ProtectHome=%s", name, u["ProtectHome"])
		}
	}
}

// asUnit runs what a unit starts, with its capabilities, and with directories read-only as they are for it. All system calls must be among those
// that it allows.
func (o *operator) asUnit(name string) {
	o.Helper()
	if printed, err := o.host.Output(o.unitCommand(name)); err != nil {
		o.Fatalf("%s: %v\n%s", name, err, printed)
	}
	o.tracedCallsAllowed(name)
}

// unitCommand returns what a unit starts, to be run as it is there.
func (o *operator) unitCommand(name string) *exec.Cmd {
	o.Helper()
	u := unit(o.T, name)
	capabilities := "-all"
	for _, c := range strings.Fields(u["CapabilityBoundingSet"]) {
		capabilities += ",+" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
	}
	readOnly := "/usr /etc"
	if u["ProtectSystem"] == "strict" {
		readOnly = "/ /run /var/lib/cni /etc/cni /opt/cni"
	}
	cmd := o.host.Command("unshare", "-m", "--propagation", "slave", "sh", "-ec", `
		for dir in `+readOnly+`; do mount --rbind $dir $dir; mount -o remount,bind,ro $dir; done
		exec setpriv --no-new-privs --bounding-set=`+capabilities+` strace -f -qq -o /mnt/trace `+u["ExecStart"])
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(netlab.Cnictl(o))+":"+os.Getenv("PATH"), "STATE_DIRECTORY=/mnt", "TEXTFILE_DIR=/mnt")
	return cmd
}

// tracedCallsAllowed makes sure that a unit allows the system calls that were made.
func (o *operator) tracedCallsAllowed(name string) {
	o.Helper()
	allowed := systemCalls(o.T, unit(o.T, name)["SystemCallFilter"])
	for _, call := range regexp.MustCompile(`(?m)^\d+ +([a-z_0-9]+)\(`).FindAllStringSubmatch(o.host.MustRun(o, "cat", "/mnt/trace"), -1) {
		if !allowed[call[1]] {
			o.Errorf("%s calls %s, which its SystemCallFilter does not allow", name, call[1])
			allowed[call[1]] = true
		}
	}
}

// systemCalls returns the system calls of a filter of systemd's, with those of the groups in it.
func systemCalls(t *testing.T, filter string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, name := range strings.Fields(filter) {
		if !strings.HasPrefix(name, "@") {
			all[name] = true
			continue
		}
		out, err := exec.Command("systemd-analyze", "syscall-filter", "--no-pager", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^ +(@?[a-z_0-9-]+)$`).FindAllStringSubmatch(string(out), -1) {
			maps.Copy(all, systemCalls(t, m[1]))
		}
	}
	return all
}

// TestUnitsHaveEnough does the work of the units with no more rights than they have: what a flush took is put back, what is gone is reported
// and nothing else, and figures are those that root gets, with doctor's findings in them.
func TestUnitsHaveEnough(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.host.MustRun(t, "sh", "-ec", `mount -t tmpfs tmpfs /mnt; sed -i 's/"name"/"repair": "all", "name"/' /etc/cni/net.d/10-demo.conflist`)
	web, address := o.attach("web")
	gone, _ := o.attach("gone")
	o.host.NewPod(t, "user") // its namespace is in a directory that is closed to all but a user
	o.host.MustRun(t, "sh", "-ec", `mkdir -p /run/user/1000/netns; touch /run/user/1000/netns/user; mount --bind /run/netns/user /run/user/1000/netns/user
		chown 1000 /run/user/1000; chmod 700 /run/user/1000`)
	o.must("add", "demo", "/run/user/1000/netns/user", "--id", "user")
	pod := o.host.NewPod(t, "process")
	process := pod.Command("sleep", "1000") // and this one is named by a process with all rights
	pod.Background(t, process)
	o.must("add", "demo", fmt.Sprintf("/proc/%d/ns/net", o.host.PID(t, process)), "--id", "process")
	gone.Delete(t)
	o.host.MustRun(t, "sh", "-ec", "touch -d '5 minutes ago' /var/lib/cni/networks/demo/* /var/lib/cni/results/*; nft flush ruleset; ip addr flush dev demo0")
	web.MustRun(t, "sh", "-c", "ip addr flush dev eth0; sysctl -qw net.ipv4.conf.eth0.log_martians=0")
	o.asUnit("cnibox-repair.service")
	o.must("check", "demo", web.Path(), "--id", "web")
	if err := o.host.Ping(address, netlab.Patience); err != nil {
		t.Error(err)
	}

	o.asUnit("cnibox-gc.service")
	var report struct {
		Goes, Stays []struct{ ContainerID, State string }
		Unread      []any
	}
	if err := json.Unmarshal([]byte(o.host.MustRun(t, "cat", "/mnt/gc.json")), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Goes) != 1 || report.Goes[0].ContainerID != "gone" || len(report.Stays) != 3 || len(report.Unread) > 0 {
		t.Errorf("gc reports %+v", report)
	}
	for _, s := range report.Stays {
		if s.State != "alive" {
			t.Errorf("%s is %s", s.ContainerID, s.State)
		}
	}

	o.asUnit("cnibox-metrics.service")
	// Each says when it was made.
	o.host.MustRun(t, "sh", "-ec", `"$0" metrics >/mnt/root; sed -i /timestamp/d /mnt/root /mnt/cnibox.prom; diff /mnt/root /mnt/cnibox.prom`, netlab.Cnictl(t))
}

// TestAgentUnitHasEnough has the agent do its work with no more rights than its unit has.
func TestAgentUnitHasEnough(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.host.MustRun(t, "mount", "-t", "tmpfs", "tmpfs", "/mnt")
	cmd := o.unitCommand("cnibox-agent.service")
	cmd.Args[len(cmd.Args)-1] += " --grace 0s"
	o.agentWorks(cmd, true)
	o.tracedCallsAllowed("cnibox-agent.service")
}

// image makes a container's files of the machine's, as runtimes do it, and the program that is tested.
const image = `root=/mnt/root; mount -t tmpfs tmpfs /mnt
	for dir in usr bin sbin lib lib64; do [ ! -e /$dir ] || { mkdir -p $root/$dir; mount --bind /$dir $root/$dir; }; done
	mkdir -p $root/proc $root/sys $root/dev $root/tmp $root/var $root/etc; ln -s /run $root/var/run
	mount -t proc proc $root/proc; mount --rbind /sys $root/sys; mount --bind /dev $root/dev
	install -D $0 $root/image/cnictl
`

// TestAgentInContainer has the agent do its work in a container as the DaemonSet of its guide makes it: privileged, and with the capabilities that
// the guide names in place of that.
func TestAgentInContainer(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/operate/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	script := image
	for _, m := range regexp.MustCompile(`mountPath: ([^,}]+)(.*)\}`).FindAllStringSubmatch(string(guide), -1) {
		path, options := m[1], m[2]
		script += "mkdir -p $root" + path + "; mount --rbind " + path + " $root" + path + "\n"
		switch {
		case strings.Contains(options, "readOnly: true"):
			script += "mount -o remount,bind,ro $root" + path + "\n"
		case !strings.Contains(options, "HostToContainer"):
			script += "mount --make-rprivate $root" + path + "\n"
		}
	}
	capabilities := "-all"
	for _, c := range strings.Split(regexp.MustCompile("the capabilities `(.*?)`").FindStringSubmatch(string(guide))[1], ", ") {
		capabilities += ",+" + strings.ToLower(c)
	}
	for name, start := range map[string]string{
		"privileged": "exec chroot $root /image/cnictl agent --grace 0s",
		"with capabilities": "mount --bind $root/proc/sys $root/proc/sys; mount -o remount,bind,ro $root/proc/sys; mount -o remount,bind,ro $root/sys\n" +
			"exec chroot $root setpriv --no-new-privs --bounding-set=" + capabilities + " /image/cnictl agent --grace 0s",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			o.must("install", "--dir", "/opt/cni/bin", "--from", netlab.Cnibox(t), "--force") // not as links to a file elsewhere
			cmd := o.host.Command("unshare", "-m", "--propagation", "slave", "sh", "-ec", script+start, netlab.Cnictl(t))
			o.agentWorks(cmd, name == "privileged")
		})
	}
}

// TestDaemonSetInstalls installs with what the DaemonSet gives that container: a read-only root without /tmp, and its capabilities. The
// directory of plugins is another user's, as kubespray makes it.
func TestDaemonSetInstalls(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile("../../dist/kubernetes/cnibox.yaml")
	if err != nil {
		t.Fatal(err)
	}
	capabilities := "-all"
	for _, c := range regexp.MustCompile(`capabilities: \{drop: \[ALL\], add: \[(\w+)\]\}`).FindAllStringSubmatch(string(manifest), -1) {
		capabilities += ",+" + strings.ToLower(c[1])
	}
	h := netlab.NewHost(t)
	h.MustRun(t, "sh", "-ec", "mkdir -p /opt/cni/bin; chown 1000:1000 /opt/cni/bin; mkdir -m 0700 /run/from; cp "+netlab.Cnibox(t)+" /run/from/cnibox")
	script := image + `rmdir $root/tmp; mkdir -p $root/opt/cni/bin $root/from
		mount --bind /opt/cni/bin $root/opt/cni/bin; mount --bind /run/from $root/from; mount -o remount,bind,ro /mnt
		exec chroot $root setpriv --no-new-privs --inh-caps=` + capabilities + " --bounding-set=" + capabilities + " /image/cnictl install --dir /opt/cni/bin --from /from/cnibox"
	t.Log(h.MustRun(t, "unshare", "-m", "sh", "-ec", script, netlab.Cnictl(t)))
	h.MustRun(t, "test", "-x", "/opt/cni/bin/bridge")
}

// agentWorks starts an agent, has it put things back, sysctls among them if it can, and collect, for a container too that comes when it runs, and
// stops it.
func (o *operator) agentWorks(cmd *exec.Cmd, sysctls bool) {
	o.Helper()
	o.host.MustRun(o, "mount", "--make-rshared", "/") // as systemd has it
	o.host.MustRun(o, "sed", "-i", `s/"name"/"repair": "all", "name"/`, "/etc/cni/net.d/10-demo.conflist")
	web, _ := o.attach("web")
	gone, _ := o.attach("gone")
	gone.Delete(o)
	o.host.MustRun(o, "sh", "-ec", "touch -d '5 minutes ago' /var/lib/cni/networks/demo/* /var/lib/cni/results/*gone*")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := o.host.Start(cmd); err != nil {
		o.Fatal(err)
	}
	ended := false
	o.Cleanup(func() {
		if !ended {
			_, _ = cmd.Process.Kill(), cmd.Wait()
		}
		if o.Failed() {
			o.Logf("the agent's log:\n%s", log.String())
		}
	})
	o.eventually("cnictl agent status")
	late, _ := o.attach("late")
	o.host.MustRun(o, "sh", "-ec", "nft flush ruleset; ip addr flush dev demo0")
	web.MustRun(o, "ip", "addr", "flush", "dev", "eth0")
	if sysctls {
		o.host.MustRun(o, "sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0")
		web.MustRun(o, "sysctl", "-qw", "net.ipv4.conf.eth0.log_martians=0")
	}
	for _, pod := range []*netlab.Pod{web, late} {
		o.eventually("cnictl check demo " + pod.Path() + " --id " + pod.Name())
	}
	o.eventually("! ls /var/lib/cni/results | grep gone")
	late.Delete(o) // which waits until nothing keeps the namespace
	o.script("kill $(cnictl agent status --json | jq .pid)")
	ended = true
	if err := cmd.Wait(); err != nil {
		o.Errorf("the agent ends: %v", err)
	}
}

// eventually waits until a command line of the shell succeeds.
func (o *operator) eventually(line string) {
	o.Helper()
	netlab.Eventually(o, func() error {
		cmd := o.host.Command("sh", "-c", line)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(netlab.Cnictl(o))+":"+os.Getenv("PATH"))
		if out, err := o.host.Output(cmd); err != nil {
			return fmt.Errorf("%s\n%w\n%s", line, err, out)
		}
		return nil
	})
}
