package operator

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/test/netlab"
)

// clinic is a node for the doctor, with two pods of the network demo.
type clinic struct {
	*operator
	outside *netlab.Outside
	pods    map[string]*netlab.Pod
	address map[string]string // by pod
	harm    func()            // does something to what was started before, for the fault
}

// newClinic returns one whose network demo has a configuration. It has nothing of what this machine says to runtimes, systemd and managers of links.
func newClinic(t *testing.T, config string) *clinic {
	t.Helper()
	host, outside := node(t)
	p := &clinic{&operator{t, host}, outside, map[string]*netlab.Pod{}, map[string]string{}, nil}
	p.shell(`mkdir -p /run/doctor/etc /run/doctor/work /run/doctor/cni /run/doctor/bin
		mount --bind /etc/cni /run/doctor/cni
		mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/doctor/etc,workdir=/run/doctor/work /etc
		mkdir -p /etc/cni; mount --bind /run/doctor/cni /etc/cni
		rm -rf /etc/containerd /etc/crio /etc/containers /etc/nerdctl /etc/NetworkManager /etc/systemd/network /etc/systemd/system/*dhcp*
		mkdir -p /etc/cni/net.d /etc/systemd/network /etc/NetworkManager
		for dir in /usr/lib/systemd/network /usr/lib/systemd/system /usr/lib/NetworkManager; do
			[ ! -d $dir ] || mount -t tmpfs none $dir
		done`)
	p.write("/etc/cni/net.d/10-demo.conflist", config)
	return p
}

func (p *clinic) shell(script string) {
	p.Helper()
	p.host.MustRun(p, "sh", "-ec", script)
}

func (p *clinic) write(path, text string) {
	p.Helper()
	p.host.Feed(p, text, "sh", "-c", "mkdir -p "+filepath.Dir(path)+" && cat >"+path)
}

// admit attaches pods, whose lo is up.
func (p *clinic) admit(names ...string) {
	p.Helper()
	for _, name := range names {
		p.pods[name], p.address[name] = p.attach(name)
	}
}

// imitate puts a script in the place of a program that this machine lacks, or that is not to run here.
func (p *clinic) imitate(program, script string) {
	p.Helper()
	p.write("/run/doctor/bin/"+program, "#!/bin/sh -e\n"+script+"\n")
	p.shell("chmod +x /run/doctor/bin/" + program)
}

// examined is what doctor prints with --json.
type examined struct {
	doctor.Report
	Fixed []doctor.Fixed
}

func (p *clinic) examine(args ...string) (e examined) {
	p.Helper()
	cmd := p.command(netlab.Cnictl(p), append([]string{"doctor", "--json"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := p.host.Run(cmd)
	if wrong := json.Unmarshal(out.Bytes(), &e); wrong != nil {
		p.Fatalf("doctor: %v\n%s%s", err, &out, &errs)
	}
	if healthy := cmd.ProcessState.ExitCode() == 0; healthy != e.Healthy() {
		p.Errorf("doctor: %v, and it found %v", err, e.codes())
	}
	for _, n := range e.CouldNotLook {
		p.Errorf("doctor could not look at %s: %s", n.What, n.Why)
	}
	return e
}

// command is one of the host's, which finds cnictl and what is imitated.
func (p *clinic) command(program string, args ...string) *exec.Cmd {
	cmd := p.host.Command(program, args...)
	cmd.Env = append(os.Environ(), "PATH="+p.path())
	return cmd
}

func (p *clinic) path() string {
	return "/run/doctor/bin:" + filepath.Dir(netlab.Cnictl(p)) + ":" + os.Getenv("PATH")
}

// codes are those of errors and warnings that a person is to read, each once.
func (e examined) codes() []string {
	list := []string{}
	for _, f := range e.Findings {
		if f.Severity != finding.Info && f.IsShown() && !slices.Contains(list, f.Code) {
			list = append(list, f.Code)
		}
	}
	return list
}

// find returns the findings of a code.
func (e examined) find(code string) (list []doctor.Finding) {
	for _, f := range e.Findings {
		if f.Code == code {
			list = append(list, f)
		}
	}
	return list
}

// fault is something that is wrong with a node.
type fault struct {
	code string
	kind string // if several have the code

	config string                                     // of the network demo, in place of demo
	pods   []string                                   // that it has; nil is one
	before func(p *clinic)                            // makes what the fault is of
	plant  func(p *clinic)                            // makes it
	works  func(p *clinic, limit time.Duration) error // fails with it
	remedy func(p *clinic)                            // in place of what the finding says, which is for a person to do
	says   string                                     // a part of what it says then
}

// TestDoctor plants each fault in a node of its own: the doctor finds it and nothing else, its remedy is run as it is printed, and then the
// doctor finds nothing.
func TestDoctor(t *testing.T) {
	t.Parallel()
	for _, f := range slices.Concat(faultsOfFilters, faultsOfLinks, faultsOfFiles, faultsOfPlugins, faultsOfDaemons, faultsOfState, faultsOfBoot) {
		t.Run(strings.TrimSuffix(f.code+"/"+f.kind, "/"), func(t *testing.T) {
			t.Parallel()
			f.try(t)
		})
	}
}

func (f fault) try(t *testing.T) {
	config := f.config
	if config == "" {
		config = demo
	}
	p := newClinic(t, config)
	if f.pods == nil {
		f.pods = []string{"web"}
	}
	p.admit(f.pods...)
	if f.before != nil {
		f.before(p)
	}
	f.wantHealthy(p, "before")
	f.plant(p)
	if f.works != nil && f.works(p, silence) == nil {
		t.Error("all works with the fault")
	}
	e := p.examine()
	if codes := e.codes(); !slices.Equal(codes, []string{f.code}) {
		t.Fatalf("found %v, want %s alone\n%+v", codes, f.code, e.Findings)
	}
	how := f.mend(p, e.find(f.code))
	f.wantHealthy(p, "after the remedy")
	t.Logf("| `%s` | %s | %s | %s |", f.code, strings.ReplaceAll(e.find(f.code)[0].Summary, "|", `\|`), how, "yes")
}

// mend does what the findings say, and returns how.
func (f fault) mend(p *clinic, findings []doctor.Finding) (how string) {
	p.Helper()
	as := "`" + strings.ReplaceAll(findings[0].Remedy, "\n", "`, `") + "`"
	if f.remedy != nil {
		if f.says == "" || !strings.Contains(findings[0].Remedy, f.says) {
			p.Errorf("%q is not in the remedy:\n%s", f.says, findings[0].Remedy)
		}
		f.remedy(p)
		return "by hand: " + as
	}
	if findings[0].Fixable {
		for _, done := range p.examine("--fix").Fixed {
			if done.Error != "" || done.Code != f.code {
				p.Errorf("doctor --fix: %+v", done)
			}
		}
		return "`doctor --fix`: " + as
	}
	for _, one := range findings {
		if out, err := p.host.Output(p.command("sh", "-ec", one.Remedy)); err != nil {
			p.Fatalf("the remedy\n%s\n%v\n%s", one.Remedy, err, out)
		}
	}
	return as
}

func (f fault) wantHealthy(p *clinic, when string) {
	p.Helper()
	if e := p.examine(); !e.Healthy() {
		p.Fatalf("%s: %+v", when, e.Findings)
	}
	if f.works == nil {
		return
	}
	if err := f.works(p, netlab.Patience); err != nil {
		p.Errorf("%s: %v", when, err)
	}
}

// TestDoctorHealthy says in one line that nothing is wrong, what was looked at, and how plugins do their work.
func TestDoctorHealthy(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.admit("web", "db")
	before := p.host.Snapshot(t)
	printed := p.must("doctor")
	for _, text := range []string{"nothing is wrong; ", " checks, networks: 1, attachments: 2", "backend: bridge masquerades with nftables: ipMasqBackend is left out, and nftables is preferred (demo)"} {
		if !strings.Contains(printed, text) {
			t.Errorf("%q is not in\n%s", text, printed)
		}
	}
	p.must("doctor", "--fix")
	if diff := before.Diff(p.host.Snapshot(t)); diff != "" {
		t.Errorf("doctor changed a healthy node:\n%s", diff)
	}
}

// TestDoctorBinDir looks at the plugins that it is told to look at, whatever runtimes have.
func TestDoctorBinDir(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.write("/etc/containerd/config.toml", "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/opt/cni/bin']\nconf_dir = '/etc/cni/net.d'\n")
	if e := p.examine(); !e.Healthy() {
		t.Fatalf("found %+v", e.Findings)
	}
	p.shell("mkdir /run/others")
	if e := p.examine("--bin-dir", "/run/others"); !slices.Equal(e.codes(), []string{"plugin-missing"}) || !strings.Contains(e.Findings[0].Summary, "it is not in /run/others") {
		t.Errorf("found %+v", e.Findings)
	}
}

// TestDoctorLoopback says that containerd 2 could do without the plugin loopback, until its configuration says that it does.
func TestDoctorLoopback(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	const file, table = "/etc/containerd/config.toml", "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".cni]\n"
	p.write(file, table)
	e := p.examine()
	if list := e.find("loopback-by-plugin"); len(list) != 1 || !strings.Contains(list[0].Remedy, "use_internal_loopback = true in "+file+`, in [plugins."io.containerd.cri.v1.runtime".cni]`) || !e.Healthy() {
		t.Errorf("found %+v", e.Findings)
	}
	p.write(file, table+"use_internal_loopback = true\n")
	if list := p.examine().find("loopback-by-plugin"); list != nil {
		t.Errorf("found %+v", list)
	}
}

// TestDoctorResolvConf says that a container asks others for names. Its file may be anything: a link, a pipe, one that is not there.
func TestDoctorResolvConf(t *testing.T) {
	t.Parallel()
	p := newClinic(t, named)
	p.admit("web")
	answersNames(p)
	files := t.TempDir()
	etc := files + "/etc"
	p.shell("mkdir -p " + etc)
	inside := p.host.Command("nsenter", "--net="+p.pods["web"].Path(), "unshare", "--mount", "sh", "-c", "mount --bind "+etc+" /etc && exec sleep 1d")
	p.host.Background(t, inside)
	finds := func(file string) bool {
		p.shell("rm -rf " + etc + "/resolv.conf; cd " + etc + "; " + file)
		e := p.examine()
		if !e.Healthy() {
			t.Errorf("%s: found %+v", file, e.Findings)
		}
		return len(e.find("names-not-asked")) > 0
	}
	netlab.Until(t, "the container to have a file of its own", func() bool { return finds("echo nameserver 192.0.2.53 >resolv.conf") })
	if !finds("echo nameserver 192.0.2.53 >real; ln -s real resolv.conf") {
		t.Error("behind a link it is not found")
	}
	for _, file := range []string{"echo nameserver 10.88.0.1 >resolv.conf", "mkfifo resolv.conf", "mkdir resolv.conf", "true", "ln -s /proc/1/root/etc/resolv.conf resolv.conf"} {
		if finds(file) {
			t.Errorf("found, though: %s", file)
		}
	}
}

// TestDoctorClean finds nothing left over of a network whose containers have all ended, beside one that has some.
func TestDoctorClean(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.write("/etc/cni/net.d/20-other.conflist", strings.Replace(other, `"isGateway"`, `"ipMasq": true, "isGateway"`, 1))
	p.admit("web", "db")
	p.must("add", "other", p.pods["web"].Path(), "--id", "web", "--ifname", "eth1")
	p.must("del", "other", p.pods["web"].Path(), "--id", "web", "--ifname", "eth1")
	if left := p.examine().find("leftovers"); left != nil {
		t.Errorf("found %+v", left)
	}
}

// TestDoctorKernel finds what the kernel lacks of what networks need, and only that.
func TestDoctorKernel(t *testing.T) {
	t.Parallel()
	for plugin, c := range map[string]struct {
		feature netlab.Feature
		keys    string
	}{
		"dummy":  {netlab.Dummy, ``},
		"ipvlan": {netlab.IPVLAN, `, "master": "` + netlab.UplinkName + `"`},
		"vlan":   {netlab.VLAN, `, "master": "` + netlab.UplinkName + `", "vlanId": 5`},
		"bridge": {netlab.BridgeVLANFiltering, `, "vlan": 5`},
	} {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			p := newClinic(t, `{"cniVersion": "1.0.0", "name": "demo", "plugins": [{"type": "`+plugin+`"`+c.keys+`}]}`)
			want := []string{}
			if !netlab.Has(t, c.feature) {
				want = append(want, "kernel-feature-missing")
			}
			if codes := p.examine().codes(); !slices.Equal(codes, want) {
				t.Errorf("found %v, want %v", codes, want)
			}
		})
	}
}

// TestDoctorUsage refuses codes that there are not, and looks only for those that are asked for.
func TestDoctorUsage(t *testing.T) {
	t.Parallel()
	p := newClinic(t, demo)
	p.admit("web")
	if code, printed := p.cnictl("doctor", "forwarding"); code != 2 || !strings.Contains(printed, "forwarding-off") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	p.shell("sysctl -qw net.ipv4.ip_forward=0; ip link set demo0 down")
	if codes := p.examine("bridge-down").codes(); !slices.Equal(codes, []string{"bridge-down"}) {
		t.Errorf("found %v", codes)
	}
	if code, printed := p.cnictl("doctor", "forwarding-off"); code != 1 || !strings.Contains(printed, "error forwarding-off: net.ipv4.ip_forward is 0") ||
		!strings.Contains(printed, "\n        sysctl -w net.ipv4.ip_forward=1\n") || !strings.Contains(printed, "cnictl doctor --fix forwarding-off") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
}
