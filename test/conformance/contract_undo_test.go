package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cnibox/cnibox/test/netlab"
)

// What the reference does otherwise in many rows of undoing.
const (
	keepsLink  = "leaves the interface that an ADD made before it failed"
	dies       = "a signal ends it where it stands"
	unreadable = "gives back nothing when it can't read the IPAM plugin's answer"
)

// script makes a shell script the plugin of a name. A process of its own writes it, so that nothing else has it open when it is executed.
func (l *lab) script(name, body string) {
	// What is there may be a link, to the plugin that is tested: install takes that away first.
	l.host.Feed(l, "#!/bin/sh\n"+body+"\n", "install", "-m", "755", "/dev/stdin", filepath.Join(netlab.PluginDir, name))
}

// calls returns what scripts have written down of how they were called, and forgets it.
func (l *lab) calls() string {
	text := l.read("/run/calls")
	l.clear("/run/calls")
	return text
}

// other is a bridge network whose addresses come from a script, which writes its calls down.
const other = `{"type":"bridge","bridge":"lan0","ipam":{"type":"other"}}`

// ipam makes that script.
func (l *lab) ipam(body string) { l.script("other", `echo "$CNI_COMMAND" >>/run/calls`+"\n"+body) }

// leases is what such a script does to hand out an address.
const leases = `test "$CNI_COMMAND" != ADD || echo '{"cniVersion":"1.0.0","ips":[{"address":"10.66.0.5/24","gateway":"10.66.0.1"}]}'`

// bridged makes the bridge lan0, so that it is there before an ADD that must leave nothing.
func (l *lab) onBridge() {
	c := l.attach(conf(`{"type":"bridge","bridge":"lan0"}`), "warm")
	l.must(c.del())
	c.Delete(l)
}

// inOwnPod is a script that runs a plugin for a container whose network namespace the script's user namespace has made.
const inOwnPod = `unshare --net sleep infinity >/dev/null 2>&1 &
until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do :; done
code=0
CNI_NETNS=/proc/$!/ns/net "$1" || code=$?
kill $!
exit $code
`

// under runs a plugin within limits of time and of processes, by a program such as setpriv, and reports why it was ended.
func (l *lab) under(wrapper, verb string, c *container, config string, changes ...change) (r netlab.PluginResult, ended string) {
	plugin, call := l.prepare(verb, c, config, changes...)
	inner := l.host.PluginCommand(l, plugin, call)
	words := append(strings.Fields(wrapper), inner.Path)
	cmd := l.host.Command(words[0], words[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = inner.Env, inner.Stdin, &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	l.must(l.host.Start(cmd))
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	runs := netlab.AwaitFor(l.patience(), func() error {
		select {
		case <-done:
			return nil
		default:
		}
		if groupSize(cmd.Process.Pid) > 50 {
			ended = "it starts processes without end"
			return nil
		}
		return errors.New("it does not end")
	})
	if runs != nil {
		ended = runs.Error()
	}
	if ended != "" {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
		l.Errorf("%s of %s: %s", verb, plugin, ended)
	}
	return l.ended(cmd, stdout.String(), stderr.String()), ended
}

// ended returns what a plugin that has ended answered.
func (l *lab) ended(cmd *exec.Cmd, stdout, stderr string) netlab.PluginResult {
	r := netlab.PluginResult{Stdout: stdout, Stderr: stderr, ExitCode: cmd.ProcessState.ExitCode()}
	if o := object(stdout); r.ExitCode != 0 && o != nil {
		r.Error = &netlab.CNIError{Msg: fmt.Sprint(o["msg"]), Details: fmt.Sprint(o["details"])}
		fmt.Sscan(fmt.Sprint(o["code"]), &r.Error.Code)
	}
	return r
}

// groupSize counts the processes of a group.
func groupSize(group int) (n int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(stat), ") ") // behind the name: state, parent, group
		if fields := strings.Fields(rest); len(fields) > 2 && fields[2] == fmt.Sprint(group) {
			n++
		}
	}
	return n
}

// untilInterrupted has a script wait until interrupt has sent its signals.
const untilInterrupted = "until test -e /run/interrupted; do sleep 0.01; done"

// notesTERM has a script go on when its plugin is told to stop, and passes that on.
const notesTERM = "trap 'echo stopped >/run/stopped' TERM\n"

// interrupt runs a plugin and sends it signals once a script has been called.
func (l *lab) interrupt(verb string, c *container, config string, signals ...syscall.Signal) netlab.PluginResult {
	plugin, call := l.prepare(verb, c, config)
	cmd := l.host.PluginCommand(l, plugin, call)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	l.must(l.host.Start(cmd))
	l.awaitCall(cmd, verb)
	for _, s := range signals {
		_ = cmd.Process.Signal(s)
	}
	if verb == "ADD" { // it passes the signal on, or ends; were the script to go on before, the ADD could be over first
		_ = netlab.AwaitFor(l.patience(), func() error { // the answer shows whether it has
			if l.read("/run/stopped") != "" || hasEnded(cmd) {
				return nil
			}
			return errors.New("the plugin takes no notice of the signal")
		})
	}
	l.write("/run/interrupted", "")
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code == 0 || code == 1 { // else its script is alone, and may not have seen the file yet
		l.remove("/run/interrupted")
	}
	l.clear("/run/stopped")
	return l.ended(cmd, stdout.String(), stderr.String())
}

var undoRows = []row{
	{name: "ADD that fails after it got an address gives it back and removes the interface", differs: keepsLink, test: func(l *lab) {
		unreachable := strings.Replace(lan, `"type":"host-local"`, `"type":"host-local","routes":[{"dst":"10.99.0.0/16","gw":"192.0.2.77"}]`, 1)
		l.warm(conf(lan))
		c := l.pod("web")
		l.now(c).refused(l.verb("ADD", c, unreachable), "192.0.2.77")
	}},
	{name: "ADD that fails calls the IPAM plugin's DEL while the interface is there", test: func(l *lab) {
		l.ipam(`test "$CNI_COMMAND" != DEL || nsenter --net="$CNI_NETNS" ip link show "$CNI_IFNAME" >>/run/calls
			test "$CNI_COMMAND" != ADD || echo '{"cniVersion":"1.0.0","ips":[{"address":"10.66.0.5/24"}],"routes":[{"dst":"10.99.0.0/16","gw":"192.0.2.77"}]}'`)
		l.refused(l.verb("ADD", l.pod("web"), other), "192.0.2.77")
		l.shows(l.calls(), "ADD\nDEL\n", ": eth0@")
	}},
	{name: "ADD of an interface name that is taken leaves that interface alone", test: func(l *lab) {
		l.warm(conf(lan))
		c := l.pod("web")
		c.run("ip link add eth0 type bridge")
		l.now(c).refused(l.verb("ADD", c, lan), "eth0")
	}},
	{name: "SIGTERM during ADD: all is undone, and the error is one document", differs: dies, test: func(l *lab) { l.stopped(syscall.SIGTERM) }},
	{name: "SIGINT during ADD: all is undone, and the error is one document", differs: dies, test: func(l *lab) { l.stopped(syscall.SIGINT) }},
	{name: "SIGHUP, SIGQUIT, SIGABRT or SIGXCPU during ADD: all is undone, and the error is one document", differs: dies, test: func(l *lab) {
		for _, s := range ending[2:] {
			if !signal.Ignored(s) { // as nohup has all ignore SIGHUP
				l.stopped(s)
			}
		}
	}},
	{name: "SIGTERM and other signals during DEL: it goes on", differs: dies, test: func(l *lab) {
		l.ipam(leases + "\n" + `test "$CNI_COMMAND" != DEL || { ` + untilInterrupted + `; echo "DEL ended" >>/run/calls; }`)
		l.onBridge()
		before := l.now()
		c := l.pod("web")
		l.must(failure(l.process("ADD", c, other)))
		l.quiet(l.interrupt("DEL", c, other, ending...))
		l.same(l.calls(), "ADD\nDEL\nDEL ended\n")
		c.Delete(l)
		before.unchanged()
	}},
}

// keptRows are about what DEL could not remove.
func keptRows() (rows []row) {
	for kind, config := range map[string]string{
		"bridge": `{"type":"bridge","bridge":"lan0"}`, "ptp": `{"type":"ptp"}`, "tap": `{"type":"tap"}`, "macvlan": onMaster("macvlan"),
	} {
		differs := "its DEL gives the address back first, or says nothing"
		if kind == "bridge" {
			differs = ""
		}
		rows = append(rows, row{name: "DEL of " + kind + " that can't remove the link keeps the address, and the next one gives it back",
			differs: differs, test: func(l *lab) {
				l.outside()
				config = with(config, "capabilities", "{}", "ipam", `{"type":"host-local","subnet":"10.44.0.0/24"}`)
				c := l.attach(conf(config), "web")
				lease := leaseDir + c.v4
				for _, prev := range []string{"null", text(object(c.printed))} {
					l.refused(l.unable("net_admin", "DEL", c, with(config, "prevResult", prev)))
					l.shows(l.read(lease), c.ID)
				}
				l.must(c.del())
				l.same(l.read(lease), "")
			}})
	}
	return sorted(rows)
}

// stopped sends an ADD a signal while it waits for its IPAM plugin, which hands out an address all the same.
func (l *lab) stopped(signal syscall.Signal) {
	l.script("other", notesTERM+`echo "$CNI_COMMAND" >>/run/calls; test "$CNI_COMMAND" != ADD || `+untilInterrupted+"\n"+leases)
	l.onBridge()
	c := l.pod("web")
	defer c.Delete(l)
	before := l.now(c)
	r := l.interrupt("ADD", c, other, signal)
	l.answered(r, 11, "ended by signal "+signal.String())
	l.same(l.calls(), "ADD\nDEL\n")
	before.unchanged()
}

// externalRows are about IPAM plugins that are programs of others.
var externalRows = []row{
	{name: "an IPAM plugin's result makes the container's interface", test: func(l *lab) {
		l.ipam(`test "$CNI_COMMAND" != ADD || echo '{"cniVersion":"1.0.0","ips":[{"address":"10.66.0.5/24","gateway":"10.66.0.1"}],
			"routes":[{"dst":"10.99.0.0/16"}],"dns":` + dns + `}'`)
		c := l.attach(conf(with(other, "isGateway", "true")), "web")
		l.printed(c.printed, `{"cniVersion":"1.0.0","interfaces":[{"name":"lan0","mac":"MAC"},{"name":"vethX","mac":"MAC"},{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"}],
			"ips":[{"address":"10.66.0.5/24","gateway":"10.66.0.1","interface":2}],"routes":[{"dst":"10.99.0.0/16"}],"dns":`+dns+`}`)
		c.hasAddresses("10.66.0.5/24")
		l.shows(c.run("ip route"), "10.99.0.0/16 via 10.66.0.1")
	}},
	{name: "an IPAM plugin's result without cniVersion has that of the network", test: func(l *lab) {
		for version, result := range map[string]string{
			"0.2.0": `{"ip4":{"ip":"10.66.0.5/24"}}`, "0.4.0": `{"ips":[{"version":"4","address":"10.66.0.5/24"}]}`, "1.0.0": `{"ips":[{"address":"10.66.0.5/24"}]}`,
		} {
			l.ipam(`test "$CNI_COMMAND" != ADD || echo '` + result + `'`)
			c := l.attach(conf(other).in(version), "v"+version)
			l.same(c.v4, "10.66.0.5")
			l.must(c.del())
		}
	}},
	{name: "an IPAM plugin's result may have another version than the network", test: func(l *lab) {
		l.ipam(`test "$CNI_COMMAND" != ADD || echo '{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.66.0.5/24"}],"dns":{}}'`)
		l.shows(l.attach(conf(other), "web").printed, `"cniVersion": "1.0.0"`, "10.66.0.5/24")
	}},
	{name: "an IPAM plugin's error is passed on, with code and details", test: func(l *lab) {
		l.ipam(leases)
		c := l.attach(conf(other), "web")
		l.ipam(`echo '{"cniVersion":"1.0.0","code":105,"msg":"the pool is closed","details":"ask at the desk"}'; exit 1`)
		prev := text(object(c.printed))
		for _, verb := range []string{"CHECK", "DEL", "ADD"} {
			to := c
			if verb == "ADD" {
				to = l.pod("next")
			}
			r := l.process(verb, to, with(other, "prevResult", prev))
			l.answered(r, 105, "the pool is closed")
			if r.Error != nil {
				l.same(r.Error.Details, "ask at the desk")
			}
		}
		l.answered(l.process("STATUS", nil, with(other, "cniVersion", `"1.1.0"`)), 105, "the pool is closed", "ask at the desk")
	}},
	{name: "an IPAM plugin's ADD that fails leaves no interface", differs: keepsLink, test: func(l *lab) {
		l.onBridge()
		l.ipam(`echo '{"cniVersion":"1.0.0","code":11,"msg":"the pool is empty"}'; exit 1`)
		c := l.pod("web")
		before := l.now(c)
		l.answered(l.process("ADD", c, other), 11, "the pool is empty")
		l.calls()
		before.unchanged()
	}},
	{name: "an IPAM plugin's ADD that fails is followed by its DEL, as the specification has it", differs: "calls DEL only after an ADD that succeeded",
		test: func(l *lab) {
			l.ipam(`test "$CNI_COMMAND" != ADD || { echo '{"cniVersion":"1.0.0","code":11,"msg":"half done"}'; exit 1; }`)
			l.refused(l.verb("ADD", l.pod("web"), other), "half done")
			l.same(l.calls(), "ADD\nDEL\n")
		}},
	{name: "what an IPAM plugin that fails says on standard error is in the error", test: func(l *lab) {
		l.ipam(`echo "out of cheese" >&2; exit 3`)
		l.refused(l.verb("ADD", l.pod("web"), other), "out of cheese")
	}},
	{name: "an IPAM plugin that fails without a word is an error", test: func(l *lab) {
		l.ipam(`exit 3`)
		l.refused(l.verb("ADD", l.pod("web"), other))
	}},
	{name: "an IPAM plugin's answer that is no result is an error, and its DEL is called", differs: unreadable, test: func(l *lab) {
		l.onBridge()
		c := l.pod("web")
		before := l.now(c)
		for _, answer := range []string{"", "done", `{"ips":7}`, `{"cniVersion":"7.0.0"}`, `{"cniVersion":"1.0.0"}`, `{}{}`} {
			l.ipam(`test "$CNI_COMMAND" != ADD || echo '` + answer + `'`)
			l.refused(l.verb("ADD", c, other))
			l.same(l.calls(), "ADD\nDEL\n")
		}
		l.remove(netlab.PluginDir + "/other")
		before.unchanged()
	}},
	{name: "an IPAM plugin gets the call's variables, and others that are set", test: func(l *lab) {
		l.script("other", `env | grep -E '^(CNI_|TRACE)' | sort >/run/seen.$CNI_COMMAND; pwd >/run/wd; readlink /proc/self/ns/net >/run/net`+"\n"+leases)
		c := l.pod("web")
		args := func(call *netlab.PluginCall) {
			call.Args, call.Path = "IgnoreUnknown=1;K8S_POD_NAME=web", "/nowhere:"+netlab.PluginDir
		}
		for _, verb := range []string{"ADD", "DEL"} {
			l.must(failure(l.process(verb, c, other, args, env("TRACEPARENT=00-abc"))))
			l.same(l.read("/run/seen."+verb), "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=web\nCNI_COMMAND="+verb+"\nCNI_CONTAINERID="+c.ID+
				"\nCNI_IFNAME=eth0\nCNI_NETNS=/run/netns/web\nCNI_PATH=/nowhere:"+netlab.PluginDir+"\nTRACEPARENT=00-abc\n")
		}
		l.same(l.read("/run/net"), l.run("readlink /proc/self/ns/net"))
	}},
	{name: "an IPAM plugin gets the whole configuration", test: func(l *lab) {
		l.script("other", "cat >/run/seen\n"+leases)
		config := with(other, "name", `"lan"`, "cniVersion", `"1.0.0"`, "colour", `{"red":[1,2.5,null,"é\n"]}`, "args", `{"cni":{"ips":["10.66.0.5"]}}`)
		l.must(l.verb("ADD", l.pod("web"), config))
		l.printed(l.read("/run/seen"), config)
	}},
	{name: "an IPAM plugin finds the container's interface, dhcp in DEL too", differs: "deletes the interface before it calls the IPAM plugin's DEL", test: func(l *lab) {
		l.script("dhcp", `nsenter --net="$CNI_NETNS" ip link show "$CNI_IFNAME" >/dev/null 2>&1 && echo "$CNI_COMMAND there" >>/run/calls`+"\n"+leases)
		l.must(l.attach(conf(with(other, "ipam", `{"type":"dhcp"}`)), "web").del())
		l.same(l.calls(), "ADD there\nDEL there\n")
	}},
	{name: "an IPAM plugin is looked for in CNI_PATH from the front", test: func(l *lab) {
		l.run("mkdir -p /run/a/other /run/b /run/c /run/d", "ln -s gone /run/d/other")
		for _, dir := range []string{"b", "c"} {
			l.script("other", "echo "+dir+" >>/run/calls\n"+leases)
			l.run("mv " + netlab.PluginDir + "/other /run/" + dir)
		}
		path := func(call *netlab.PluginCall) { call.Path = "/nowhere:/run/d:/run/a:/run/b:/run/c:" + netlab.PluginDir }
		l.must(failure(l.process("ADD", l.pod("web"), other, path)))
		l.same(l.calls(), "b\n")
	}},
	{name: "an IPAM type that is a path is refused", test: func(l *lab) {
		l.ipam(leases)
		for _, path := range []string{"../bin/other", "/opt/cni/bin/other"} {
			l.refused(l.verb("ADD", l.pod("web"+fmt.Sprint(len(path))), with(other, "ipam", `{"type":`+text(path)+`}`)), path)
		}
		l.same(l.calls(), "")
	}},
	{name: "an IPAM plugin's DEL that fails can be repeated", test: func(l *lab) {
		l.ipam(leases)
		l.onBridge()
		before := l.now()
		c := l.attach(conf(other), "web")
		l.ipam(`echo '{"cniVersion":"1.0.0","code":11,"msg":"busy"}'; exit 1`)
		l.refused(c.del(), "busy")
		l.ipam(leases)
		l.must(c.del())
		l.calls()
		c.Delete(l)
		before.unchanged()
	}},
	{name: "STATUS asks the IPAM plugin", test: func(l *lab) {
		l.ipam(`echo '{"cniVersion":"1.1.0","code":50,"msg":"no server answers"}'; exit 1`)
		l.answered(l.process("STATUS", nil, with(other, "cniVersion", `"1.1.0"`)), 50, "no server answers")
		l.same(l.calls(), "STATUS\n")
	}},
	{name: "STATUS is fine with an IPAM plugin that is older than STATUS", differs: "takes the age of an IPAM plugin for a failure", test: func(l *lab) {
		l.ipam(`echo '{"code":4,"msg":"unknown CNI_COMMAND: '$CNI_COMMAND'"}'; exit 1`)
		l.quiet(l.process("STATUS", nil, with(other, "cniVersion", `"1.1.0"`)))
	}},
	{name: "STATUS of a network whose IPAM plugin is not installed is an error", test: func(l *lab) {
		l.refused(l.status(conf(with(lan, "ipam", `{"type":"nowhere"}`))), "nowhere")
	}},
	{name: "GC reaches the IPAM plugin, with the list of valid attachments", differs: noGC, test: func(l *lab) {
		l.script("other", `test "$CNI_COMMAND" != GC || cat >/run/seen`+"\n"+leases)
		c := l.attach(conf(other).in("1.1.0"), "web")
		l.must(l.gc(conf(other), c))
		l.shows(l.read("/run/seen"), c.ID, "cni.dev/valid-attachments")
	}},
}

// limitRows are about calls that must come to an end.
func limitRows() (rows []row) {
	const itself = `{"type":"bridge","bridge":"lan0","ipam":{"type":"bridge"}}`
	// Neither memory nor processes without end: the machine has other things to do.
	const limited = "prlimit --data=400000000 --core=0"
	rows = append(rows,
		row{name: "ADD of a bridge that is its own IPAM plugin is refused with one document", test: func(l *lab) {
			c := l.pod("web")
			r, _ := l.under(limited, "ADD", c, itself)
			if r.ExitCode != 1 || r.Error == nil {
				l.Errorf("want exit code 1 and one error document, got exit code %d, %.200s", r.ExitCode, r.Stdout+r.Stderr)
			}
		}},
		row{name: "CHECK of a bridge that is its own IPAM plugin comes to an end", differs: "calls itself without end", test: func(l *lab) {
			c := l.attach(conf(lan), "web")
			r, _ := l.under(limited, "CHECK", c, with(itself, "prevResult", text(object(c.printed))))
			if r.ExitCode != 0 && r.Error == nil {
				l.Errorf("exit code %d without an error document: %.200s", r.ExitCode, r.Stdout+r.Stderr)
			}
		}},
		row{name: "GC of a bridge that is its own IPAM plugin comes to an end", test: func(l *lab) {
			r, _ := l.under(limited, "GC", nil, with(itself, "cniVersion", `"1.1.0"`, "cni.dev/valid-attachments", "[]"))
			if r.ExitCode != 0 && r.Error == nil {
				l.Errorf("exit code %d without an error document: %.200s", r.ExitCode, r.Stdout+r.Stderr)
			}
		}},
	)
	for _, plugin := range []string{lan, `{"type":"portmap","capabilities":{"portMappings":true}}`, `{"type":"firewall"}`} {
		name, differs := object(plugin)["type"].(string), ""
		if name == "firewall" {
			differs = "its firewall's DEL does not say that it could remove nothing"
		}
		rows = append(rows, row{differs: differs, name: "DEL of " + name + " without CAP_NET_ADMIN fails at once", test: func(l *lab) {
			c := l.attach(conf(lan, `{"type":"portmap","capabilities":{"portMappings":true}}`, `{"type":"firewall"}`), "web", ports("8080:80/tcp"))
			config := with(plugin, "prevResult", text(object(c.printed)), "runtimeConfig", `{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`)
			r, ended := l.under("setpriv --bounding-set=-net_admin --inh-caps=-net_admin", "DEL", c, config)
			if ended == "" {
				l.refused(failure(r))
				l.lacks(r.Stdout, "temporarily unavailable")
			}
			l.must(c.del())
		}})
	}
	for _, plugin := range []string{lan, `{"type":"ptp"}`, `{"type":"macvlan","master":"` + netlab.UplinkName + `"}`} {
		name := object(plugin)["type"].(string)
		rows = append(rows, row{name: "ADD of " + name + " in a user namespace that has not made the host's network namespace says what it takes", differs: "it says what failed, and not what to do", test: func(l *lab) {
			l.outside()
			l.warm(conf(with(plugin, "ipam", pool)))
			l.write("/run/with-pod", inOwnPod)
			before := l.now()
			r, _ := l.under("unshare --user --map-root-user sh -e /run/with-pod", "ADD", l.pod("web"), with(plugin, "ipam", pool))
			l.answered(r, 999, "operation not permitted", "unshare --user --map-root-user --net --mount")
			before.unchanged()
		}})
	}
	rows = append(rows, row{name: "ADD of tap for a user who has no id in the user namespace says so", differs: "it says what failed, and not why", test: func(l *lab) {
		l.write("/run/with-pod", inOwnPod)
		before := l.now()
		r, _ := l.under("unshare --user --map-root-user --net sh -e /run/with-pod", "ADD", l.pod("web"), `{"type":"tap","owner":1234}`)
		l.answered(r, 999, "1234: invalid argument", "has no such id")
		before.unchanged()
	}})
	for _, c := range []struct{ plugin, keys, capability string }{
		{"bridge", ``, "net_admin"},
		{"bridge", ``, "sys_admin"},
		{"loopback", ``, "net_admin"},
		{"loopback", ``, "sys_admin"},
		{"tuning", `,"mtu":1400`, "net_admin"},
		{"tuning", `,"sysctl":{"net.ipv4.ip_forward":"1"}`, "sys_admin"},
		{"portmap", ``, "net_admin"},
		{"portmap", `,"backend":"iptables"`, "net_admin"},
		{"firewall", ``, "net_admin"},
		{"firewall", `,"backend":"iptables"`, "net_admin"},
	} {
		name := fmt.Sprintf("STATUS of %s%s", c.plugin, strings.NewReplacer(`,`, " with ", `"`, "").Replace(c.keys))
		rows = append(rows, needsCapability(name, `{"type":"`+c.plugin+`"`+c.keys+`}`, c.capability))
	}
	return rows
}
