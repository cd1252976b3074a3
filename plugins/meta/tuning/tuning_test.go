package tuning

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/plugin"
)

const (
	everything = `,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1","net/ipv4/tcp_rmem":"4096 87380 4194304"},
		"mac":"C2-11-22-33-44-55","promisc":true,"mtu":1400,"allmulti":true,"txQLen":77`
	untouched  = podMAC + " mtu 1500 promisc 0 allmulti 0 txqlen 1000"
	tuned      = "c2:11:22:33:44:55 mtu 1400 promisc 1 allmulti 1 txqlen 77"
	backupFile = "/run/cni/tuning/cid_eth0.json"
	recorded   = "{\n \"mac\": \"" + podMAC + "\",\n \"promisc\": false,\n \"mtu\": 1500,\n \"allmulti\": false,\n \"txQLen\": 1000\n}"
)

func TestAddChangesAndDelRestores(t *testing.T) {
	l := newLab(t)
	result := l.mustAdd(everything)

	want := l.previousResult("c2:11:22:33:44:55")
	want.Interfaces[1].Mtu = 1400
	if diff := cmp.Diff(want, result); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if got := l.link(); got != tuned {
		t.Errorf("eth0 is %s, want %s", got, tuned)
	}
	if got := l.sysctl("net/ipv4/conf/eth0/arp_filter"); got != "1" {
		t.Errorf("arp_filter is %q", got)
	}
	if got := l.file(backupFile); got != recorded {
		t.Errorf("recorded: %s", got)
	}
	check := l.request(plugin.Check, everything)
	check.PrevResult = result
	if err := l.call(check); err != nil {
		t.Error("CHECK: ", err)
	}

	del := l.request(plugin.Del, everything)
	del.PrevResult = result
	for range 2 {
		if err := l.call(del); err != nil {
			t.Error("DEL: ", err)
		}
		if got := l.link(); got != untouched {
			t.Errorf("after DEL eth0 is %s, want %s", got, untouched)
		}
		if files := l.files("/run/cni/tuning"); files != nil {
			t.Errorf("after DEL there are %q", files)
		}
	}
}

func TestAddWithoutAttributesMakesNoFile(t *testing.T) {
	l := newLab(t)
	for _, keys := range []string{``, `,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}`, `,"promisc":false,"mtu":0,"mac":""`} {
		l.mustAdd(keys)
		if files := l.files("/run/cni"); files != nil {
			t.Errorf("%s: made %q", keys, files)
		}
		if err := l.call(l.request(plugin.Del, keys)); err != nil {
			t.Errorf("%s: DEL: %v", keys, err)
		}
	}
	if got := l.link(); got != untouched {
		t.Errorf("eth0 is %s, want %s", got, untouched)
	}
}

func TestAddOfArgsSysctlAlone(t *testing.T) {
	l := newLab(t)
	l.mustAdd(`,"args":{"cni":{"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}}}`)
	if got := l.sysctl("net/ipv4/conf/eth0/arp_filter"); got != "1" {
		t.Errorf("arp_filter is %q", got)
	}
}

func TestAddSetsWriteOnlySysctl(t *testing.T) {
	l := newLab(t)
	const keys = `,"sysctl":{"net.ipv4.route.flush":"1"}`
	l.mustAdd(keys)
	if err := l.call(l.request(plugin.Check, keys)); err != nil {
		t.Error("CHECK: ", err)
	}
}

func TestAddSetsSysctlOfInterfaceWithDots(t *testing.T) {
	l := newLab(t)
	l.pod.MustRun(t, "ip", "link", "set", "eth0", "name", "eth0.5")
	for i, key := range []string{"net.ipv4.conf.IFNAME.arp_filter", "net/ipv4/conf/eth0.5/arp_ignore", "net.ipv4.conf.eth0/5.arp_announce"} {
		r := l.request(plugin.Add, `,"sysctl":{"`+key+`":"1"}`)
		r.IfName = "eth0.5"
		if _, err := l.add(r); err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		name := []string{"arp_filter", "arp_ignore", "arp_announce"}[i]
		if got := l.sysctl("net/ipv4/conf/eth0.5/" + name); got != "1" {
			t.Errorf("%s: %s is %q", key, name, got)
		}
	}
}

// What fails must change nothing: neither before nor after the first change.
func TestFailedAddChangesNothing(t *testing.T) {
	const sysctls = `,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}`
	tests := []struct {
		name  string
		keys  string
		texts []string
	}{
		{"unknown sysctl", `,"mtu":1400,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1","net.ipv4.conf.IFNAME.nonsense":"1"}`,
			[]string{`set sysctl net.ipv4.conf.IFNAME.nonsense (net/ipv4/conf/eth0/nonsense) to "1"`, "check the spelling"}},
		{"sysctl value", `,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1","net.ipv4.ip_forward":"yes"}`,
			[]string{`net.ipv4.ip_forward to "yes"`, "does not take that value"}},
		{"too many numbers", `,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1 2"}`, []string{"took only"}},
		{"sysctl outside of net", `,"mtu":1400,"sysctl":{"kernel.hostname":"x"}`, []string{`sysctl: invalid net sysctl key "kernel.hostname"`}},
		{"sysctl up and out", `,"sysctl":{"net/../kernel/hostname":"x"}`, []string{`"net/../kernel/hostname"`}},
		{"sysctl of wrong type", `,"sysctl":{"net.ipv4.ip_forward":1}`, []string{`key "sysctl.net.ipv4.ip_forward": want a string, got the number 1`}},
		{"same sysctl twice", `,"sysctl":{"net.ipv4.ip_forward":"1","net.ipv4.ip_forward":"0"}`, []string{"duplicated sysctl keys are not allowed"}},
		{"same sysctl in two forms", `,"sysctl":{"net.ipv4.ip_forward":"1","net/ipv4/ip_forward":"0"}`, []string{"net.ipv4.ip_forward and net/ipv4/ip_forward"}},
		{"MAC", sysctls + `,"mac":"zz"`, []string{`key "mac"`, `"zz"`}},
		{"MAC of a group", sysctls + `,"mac":"03:00:00:00:00:01"`, []string{`key "mac"`, `"03:00:00:00:00:01"`}},
		{"MAC of zeros", sysctls + `,"mac":"00:00:00:00:00:00"`, []string{`key "mac"`}},
		{"MAC in runtimeConfig", sysctls + `,"runtimeConfig":{"mac":"02:00"}`, []string{`key "runtimeConfig.mac"`}},
		{"MAC in args", sysctls + `,"args":{"cni":{"mac":"02:00"}}`, []string{`key "args.cni.mac"`}},
		{"small MTU", sysctls + `,"mtu":67`, []string{`key "mtu"`, "from 68 to 65536", "67"}},
		{"large MTU", sysctls + `,"args":{"cni":{"mtu":65537}}`, []string{`key "args.cni.mtu"`}},
		{"queue", sysctls + `,"txQLen":-1`, []string{`key "txQLen"`}},
		{"wrong type", sysctls + `,"promisc":"yes"`, []string{`key "promisc": want true or false`}},
		{"dataDir", sysctls + `,"mtu":1400,"dataDir":"cni"`, []string{`key "dataDir"`, `"cni" is no absolute path`}},
		{"MTU the link does not take", sysctls + `,"mac":"02:00:00:00:00:02","promisc":true,"mtu":65536`, []string{"set mtu of eth0", "65536", `correct "mtu"`}},
		{"dataDir that can't be", sysctls + `,"mtu":1400,"dataDir":"/proc/cni"`, []string{"/proc/cni", `"dataDir"`}},
	}
	l := newLab(t)
	for _, tt := range tests {
		result, err := l.add(l.request(plugin.Add, tt.keys))
		wantError(t, tt.name, err, tt.texts...)
		if result != nil {
			t.Errorf("%s: result %v", tt.name, result)
		}
		if got := l.link(); got != untouched {
			t.Errorf("%s: eth0 is %s, want %s", tt.name, got, untouched)
		}
		if got := l.sysctl("net/ipv4/conf/eth0/arp_filter"); got != "0" {
			t.Errorf("%s: arp_filter is %q", tt.name, got)
		}
		if files := l.files("/run/cni/tuning"); files != nil {
			t.Errorf("%s: left %q", tt.name, files)
		}
	}
}

func TestAddNeedsPrevResultAndInterface(t *testing.T) {
	l := newLab(t)
	r := l.request(plugin.Add, everything)
	r.PrevResult = nil
	_, err := l.add(r)
	wantError(t, "no prevResult", err, "Required prevResult missing", "behind one that makes an interface")

	r = l.request(plugin.Add, everything)
	r.IfName = "eth7"
	_, err = l.add(r)
	wantError(t, "no interface", err, l.pod.Path(), `no interface "eth7"`)
}

func TestCancelledAddIsUndone(t *testing.T) {
	steps := []string{"set sysctl net.ipv4.conf", "set sysctl net/ipv4/tcp_rmem", "record", "set mac", "set promisc", "set mtu", "set allmulti", "set txQLen"}
	l := newLab(t)
	for _, at := range steps {
		ctx, cancel := context.WithCancelCause(context.Background())
		r := l.request(plugin.Add, everything)
		r.Trace = func(step string) {
			if strings.HasPrefix(step, at) {
				cancel(errors.New("enough"))
			}
		}
		var err error
		l.at(r, func() { _, err = Plugin{}.Add(ctx, r) })
		wantError(t, at, err, "stopped before the step: "+at, "enough")
		if got := l.link(); got != untouched {
			t.Errorf("stopped at %s: eth0 is %s, want %s", at, got, untouched)
		}
		if got := l.sysctl("net/ipv4/conf/eth0/arp_filter"); got != "0" {
			t.Errorf("stopped at %s: arp_filter is %q", at, got)
		}
		if files := l.files("/run/cni/tuning"); files != nil {
			t.Errorf("stopped at %s: left %q", at, files)
		}
	}
}

func TestSecondAddKeepsWhatTheFirstRecorded(t *testing.T) {
	l := newLab(t)
	l.mustAdd(`,"mac":"c2:11:22:33:44:55","mtu":1400`)
	first := l.file(backupFile)

	// One that fails leaves the record as it was.
	if _, err := l.add(l.request(plugin.Add, `,"txQLen":77,"mtu":65536`)); err == nil {
		t.Error("ADD with a MTU that is too large: no error")
	}
	if got := l.file(backupFile); got != first {
		t.Errorf("record after a failed ADD: %s, want %s", got, first)
	}

	// One that changes more adds to it.
	l.mustAdd(everything)
	if got := l.file(backupFile); got != recorded {
		t.Errorf("record after a second ADD: %s", got)
	}
	r := l.request(plugin.Del, ``)
	r.PrevResult = nil
	if err := l.call(r); err != nil {
		t.Error("DEL: ", err)
	}
	if got := l.link(); got != untouched {
		t.Errorf("after DEL eth0 is %s, want %s", got, untouched)
	}
}

func TestDelWithWhatIsLeft(t *testing.T) {
	tests := []struct {
		name    string
		change  func(l *lab, r *plugin.Request)
		restore bool // the link is expected to have its attributes back
	}{
		{"all there", func(*lab, *plugin.Request) {}, true},
		{"the key alone", func(l *lab, r *plugin.Request) {
			*r = *l.request(plugin.Del, ``)
			r.PrevResult = nil
		}, true},
		{"the previous result as ADD got it", func(l *lab, r *plugin.Request) { r.PrevResult = l.previousResult(podMAC) }, true},
		{"a previous result without a MAC address", func(l *lab, r *plugin.Request) { r.PrevResult = l.previousResult("") }, true},
		{"a configuration that became invalid", func(l *lab, r *plugin.Request) {
			result := r.PrevResult
			*r = *l.request(plugin.Del, `,"sysctl":7,"mac":"zz","mtu":"x","dataDir":"relative"`)
			r.PrevResult, r.Args = result, "NONSENSE"
		}, true},
		{"no namespace given", func(_ *lab, r *plugin.Request) { r.Netns = "" }, false},
		{"namespace gone", func(l *lab, r *plugin.Request) { l.pod.Delete(l.T) }, false},
		{"a plain file in its place", func(l *lab, r *plugin.Request) { l.pod.DeleteKeepFile(l.T) }, false},
		{"namespace empty", func(l *lab, r *plugin.Request) { l.pod.Replace(l.T) }, false},
		{"namespace of another container", func(l *lab, r *plugin.Request) {
			l.pod.Replace(l.T)
			l.addInterface("02:00:00:00:00:99")
		}, false},
		{"empty file", func(l *lab, r *plugin.Request) { l.write(backupFile, "") }, false},
		{"torn file", func(l *lab, r *plugin.Request) { l.write(backupFile, recorded[:20]) }, false},
		{"file with more in it", func(l *lab, r *plugin.Request) {
			l.write(backupFile, strings.Replace(recorded, "{", `{"new":{},`, 1))
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t)
			result := l.mustAdd(everything)
			r := l.request(plugin.Del, everything)
			r.PrevResult = result
			tt.change(l, r)
			for range 2 {
				if err := l.call(r); err != nil {
					t.Error("DEL: ", err)
				}
			}
			if files := l.files("/run/cni/tuning"); files != nil {
				t.Errorf("left %q", files)
			}
			if tt.restore {
				if got := l.link(); got != untouched {
					t.Errorf("eth0 is %s, want %s", got, untouched)
				}
			}
			if tt.name == "namespace of another container" {
				if got, want := l.link(), strings.Replace(untouched, podMAC, "02:00:00:00:00:99", 1); got != want {
					t.Errorf("the other container's eth0 is %s, want %s", got, want)
				}
			}
		})
	}
}

func TestDelRestoresOnlyWhatIsRecorded(t *testing.T) {
	l := newLab(t)
	l.mustAdd(`,"mtu":1400`)
	l.pod.MustRun(t, "ip", "link", "set", "eth0", "txqueuelen", "5", "promisc", "on")
	if err := l.call(l.request(plugin.Del, everything)); err != nil {
		t.Error("DEL: ", err)
	}
	if got, want := l.link(), podMAC+" mtu 1500 promisc 1 allmulti 0 txqlen 5"; got != want {
		t.Errorf("eth0 is %s, want %s", got, want)
	}
}

func TestDelKeepsTheFileWhenItCantRestore(t *testing.T) {
	l := newLab(t)
	l.mustAdd(`,"mtu":1400,"txQLen":77`)
	l.write(backupFile, `{"mtu": 70000, "txQLen": 1000}`)
	err := l.call(l.request(plugin.Del, ``))
	wantError(t, "DEL", err, "set mtu of eth0", "70000", "remove the file "+backupFile)
	if got, want := l.link(), podMAC+" mtu 1400 promisc 0 allmulti 0 txqlen 1000"; got != want {
		t.Errorf("eth0 is %s, want %s", got, want)
	}
	if l.file(backupFile) == "" {
		t.Error("the file is gone")
	}
}

func TestCheckNamesEachDifference(t *testing.T) {
	tests := []struct {
		change []string // arguments of ip, or a sysctl and its value
		texts  []string
	}{
		{[]string{"link", "set", "eth0", "address", "02:00:00:00:00:07"}, []string{"mac is 02:00:00:00:00:07, not c2:11:22:33:44:55"}},
		{[]string{"link", "set", "eth0", "promisc", "off", "mtu", "1300"}, []string{"promisc is false, not true", "mtu is 1300, not 1400"}},
		{[]string{"link", "set", "eth0", "allmulticast", "off"}, []string{"allmulti is false, not true"}},
		{[]string{"link", "set", "eth0", "txqueuelen", "5"}, []string{"txQLen is 5, not 77"}},
		{[]string{"link", "del", "eth0"}, []string{`no interface "eth0"`}},
	}
	for _, tt := range tests {
		l := newLab(t)
		r := l.request(plugin.Check, everything)
		r.PrevResult = l.mustAdd(everything)
		l.pod.MustRun(t, "ip", tt.change...)
		wantError(t, strings.Join(tt.change, " "), l.call(r), tt.texts...)
	}

	l := newLab(t)
	r := l.request(plugin.Check, everything)
	r.PrevResult = l.mustAdd(everything)
	l.pod.MustRun(t, "sysctl", "-q", "-w", "net.ipv4.conf.eth0.arp_filter=0")
	wantError(t, "sysctl", l.call(r), `sysctl net.ipv4.conf.IFNAME.arp_filter is "0", not "1"`)
	r.PrevResult = nil
	wantError(t, "no prevResult", l.call(r), "Required prevResult missing")
}

func TestCheckLeavesAloneWhatIsNotConfigured(t *testing.T) {
	l := newLab(t)
	l.mustAdd(`,"txQLen":77`)
	l.pod.MustRun(t, "ip", "link", "set", "eth0", "promisc", "on", "mtu", "1300")
	if err := l.call(l.request(plugin.Check, `,"txQLen":77`)); err != nil {
		t.Error(err)
	}
}

func TestStatus(t *testing.T) {
	l := newLab(t)
	for _, keys := range []string{``, everything} {
		r := l.request(plugin.Status, keys)
		r.ContainerID, r.IfName, r.Netns, r.PrevResult = "", "", "", nil
		if err := l.call(r); err != nil {
			t.Errorf("%s: %v", keys, err)
		}
	}
	wantError(t, "MAC", l.call(l.request(plugin.Status, `,"mac":"zz"`)), `key "mac"`)
	l.write(allowlistFile, "^net.ipv6")
	wantError(t, "allowlist", l.call(l.request(plugin.Status, everything)), "Sysctl net.ipv4.conf.IFNAME.arp_filter is not allowed")
}

func TestAllowlist(t *testing.T) {
	tests := []struct {
		name, list, keys string
		texts            []string // of the error, none for success
	}{
		{"line that matches", "\n  ^net\\.ipv4\\.conf\\.IFNAME\\.[a-z_]+$  \n\n", `,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}`, nil},
		{"part of the key", "arp_fil", `,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}`, nil},
		{"another line", "^net.ipv6\n^net.core", `,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}`,
			[]string{"Sysctl net.ipv4.conf.IFNAME.arp_filter is not allowed. Only the following sysctls are allowed: [^net.ipv6 ^net.core]", allowlistFile}},
		{"the key as it is written counts", "^net.ipv4.conf.eth0", `,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}`, []string{"not allowed"}},
		{"empty file", "\n", `,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}`, []string{"not allowed"}},
		{"empty file and no sysctl", "", `,"mtu":1400`, nil},
		{"sysctl in args", "^net.ipv4.conf.IFNAME.arp", `,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"},"args":{"cni":{"sysctl":{"net.ipv4.ip_forward":"1"}}}`, []string{"net.ipv4.ip_forward is not allowed"}},
		{"bad pattern", "net(", `,"sysctl":{"net.ipv4.conf.IFNAME.arp_filter":"1"}`, []string{allowlistFile, `"net("`}},
	}
	l := newLab(t)
	for _, tt := range tests {
		l.write(allowlistFile, tt.list)
		_, err := l.add(l.request(plugin.Add, tt.keys))
		switch {
		case tt.texts != nil:
			wantError(t, tt.name, err, tt.texts...)
		case err != nil:
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
