package conformance

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/plugins/pkg/testutils"

	"github.com/cnibox/cnibox/test/netlab"
)

// viaContiv is a network of contiv's daemon.
const viaContiv = `{"type":"contivk8s"}`

// quick is one with little patience.
const quick = `{"type":"contivk8s","timeout":1}`

// ofWeb is what a runtime of Kubernetes says of a container.
const ofWeb = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web"

// ofPod is what a runtime of Kubernetes says of a container, as kubelet has it.
func ofPod(c *container, name string) option {
	return args("IgnoreUnknown=1", "K8S_POD_NAMESPACE=shop", "K8S_POD_NAME="+name, "K8S_POD_INFRA_CONTAINER_ID="+c.ID, "K8S_POD_UID=0815")
}

// join makes a pod and attaches it to a network of contiv's daemon.
func (l *lab) join(n network, name string, options ...option) *container {
	c := l.pod(name)
	l.must(c.add(n, append(options, ofPod(c, name))...))
	return c
}

// joined starts the daemon, and attaches a container to its network.
func (l *lab) joined() (*netplugin, *container) {
	d := l.netplugin(nil)
	return d, l.join(conf(viaContiv), "web")
}

// said returns CNI_ARGS for a call without libcni.
func said(arguments string) change {
	return func(call *netlab.PluginCall) { call.Args = arguments }
}

// deletions are the deletions that the daemon has not had.
func (l *lab) deletions() []string { return l.files("/var/lib/cni/contivk8s/deletions/*") }

// noted are the attachments that DEL has still to come for.
func (l *lab) noted() []string { return l.files("/var/lib/cni/contivk8s/*.json") }

var contivRows = group{name: "contivk8s",
	rows: slices.Concat(contivCalls, contivVersions(), contivFailures(), contivSilence(), contivDels, contivQueue, contivRefusals(), contivChecks(), contivOthers)}

// contivCalls are about what the daemon gets.
var contivCalls = []row{
	{name: "the daemon gets contiv's five keys and nothing else, at contiv's paths, with the one type that it serves", test: func(l *lab) {
		d := l.netplugin(nil)
		web := l.pod("web")
		sleep := web.Command("sleep", "infinity")
		web.Background(l, sleep)
		path := fmt.Sprintf("/proc/%d/ns/net", sleep.Process.Pid)
		for _, verb := range []string{"ADD", "DEL"} {
			l.must(l.verb(verb, web, viaContiv, said("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"), func(call *netlab.PluginCall) { call.Netns = path }))
		}
		posts := d.requests()
		l.same(len(posts), 2)
		for i, p := range posts {
			l.same(p.path, []string{"/ContivCNI.AddPod", "/ContivCNI.DelPod"}[i])
			l.same(p.header["Content-Type"], []string{"application/json"})
			l.same(p.body, `{"K8S_POD_NAME":"web-0","K8S_POD_NAMESPACE":"shop","K8S_POD_INFRA_CONTAINER_ID":"`+web.ID+`","CNI_NETNS":"`+path+`","CNI_IFNAME":"eth0"}`)
		}
	}},
	{name: "a namespace that is at no process' path has one that leads there while the call lasts, and never to the host's", test: func(l *lab) {
		var seen []string
		d := l.netplugin(nil)
		d.look = func(p post) {
			at, err := os.Readlink(p.pod.Netns)
			if err != nil {
				at = err.Error()
			}
			seen = append(seen, at)
		}
		web := l.join(conf(viaContiv), "web")
		l.must(web.del())
		inside := strings.TrimSpace(web.run("readlink /proc/self/ns/net"))
		l.same(seen, []string{inside, inside})
		for _, p := range d.requests() {
			l.same(p.header["Cni-Netns"], []string{"/run/netns/web"})
			l.same(regexp.MustCompile(`^/proc/\d+/ns/net$`).MatchString(p.pod.Netns), true)
		}
	}},
	{name: "DEL with the namespace gone names its path, and one without a path none", test: func(l *lab) {
		d, web := l.joined()
		web.Delete(l)
		l.must(web.del(), web.delBare())
		posts := d.requests()
		l.same(len(posts), 3)
		l.same(posts[1].pod.Netns, "/run/netns/web")
		l.same(posts[2].pod.Netns, "")
		l.lacks(posts[2].body, "CNI_NETNS")
	}},
	{name: "DEL with the host's namespace at the path names no path", test: func(l *lab) {
		d, web := l.joined()
		d.requests()
		l.must(l.verb("DEL", web, viaContiv, func(call *netlab.PluginCall) { call.Netns = l.host.NetnsPath() }))
		l.same(d.requests()[0].pod.Netns, "")
	}},
	{name: "hostile CNI_ARGS don't change who the container is", test: func(l *lab) {
		d := l.netplugin(nil)
		for i, hostile := range []string{
			`X=1","K8S_POD_NAMESPACE":"kube-system`, `X=1","K8S_POD_NAMESPACE":"kube-system;`, `\u0058=\u0041`, `X=a=b=c`, `;;`, `X={"K8S_POD_NAME":"root"}`, "",
		} {
			c := l.pod(fmt.Sprint("web", i))
			l.must(l.verb("ADD", c, viaContiv, said(ofWeb+";"+hostile)))
			p := d.requests()[0]
			l.same(p.body, `{"K8S_POD_NAME":"web","K8S_POD_NAMESPACE":"shop","K8S_POD_INFRA_CONTAINER_ID":"`+c.ID+`","CNI_NETNS":"`+p.pod.Netns+`","CNI_IFNAME":"eth0"}`)
		}
		for i, hostile := range []string{`K8S_POD_NAME=web","K8S_POD_NAMESPACE":"kube-system`, `K8S_POD_NAME=\u0041`, `K8S_POD_NAME=a/b`, `K8S_POD_INFRA_CONTAINER_ID=other`} {
			l.code(l.verb("ADD", l.pod(fmt.Sprint("db", i)), viaContiv, said(ofWeb+";"+hostile)), 4)
		}
		l.same(d.got(), []string(nil))
	}},
}

// contivVersions are about the result.
func contivVersions() (rows []row) {
	for _, version := range testutils.AllSpecVersions {
		rows = append(rows, row{name: "the result in the form of " + version + ", to the byte", test: func(l *lab) {
			l.netplugin(nil)
			c := l.join(conf(viaContiv).in(version), "web")
			l.printed(strings.ReplaceAll(c.printed, "vport9", "vethX"), contivResult(version))
			if testutils.SpecVersionHasCHECK(version) {
				l.must(c.check())
			}
			l.must(c.del())
		}})
	}
	return rows
}

// contivResult is what netplugin makes, in the form of a version.
func contivResult(version string) string {
	const routes = `"routes":[{"dst":"0.0.0.0/0","gw":"20.1.1.1"},{"dst":"10.60.0.0/16","gw":"20.1.1.2"},{"dst":"::/0","gw":"fd20::1"}]`
	mtu, four, six, dns := "", "", "", ""
	switch {
	case !testutils.SpecVersionHasMultipleIPs(version):
		return fmt.Sprintf(`{"cniVersion":%q,"dns":{},
			"ip4":{"ip":"20.1.1.9/24","gateway":"20.1.1.1","routes":[{"dst":"0.0.0.0/0","gw":"20.1.1.1"},{"dst":"10.60.0.0/16","gw":"20.1.1.2"}]},
			"ip6":{"ip":"fd20::9/64","gateway":"fd20::1","routes":[{"dst":"::/0","gw":"fd20::1"}]}}`, version)
	case version == "1.1.0":
		mtu = `,"mtu":1500`
	case testutils.SpecVersionHasIPVersion(version):
		four, six, dns = `,"version":"4"`, `,"version":"6"`, `,"dns":{}`
	}
	return fmt.Sprintf(`{"cniVersion":%q,"interfaces":[{"name":"vethX","mac":"MAC"%s},{"name":"eth0","mac":"MAC","sandbox":"/run/netns/web"%s}],
		"ips":[{"address":"20.1.1.9/24","gateway":"20.1.1.1","interface":1%s},{"address":"fd20::9/64","gateway":"fd20::1","interface":1%s}],%s%s}`,
		version, mtu, mtu, four, six, routes, dns)
}

// contivFailures are about errors that the daemon answers.
func contivFailures() (rows []row) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		code   uint
		says   []string
	}{
		{"contiv's labels", 500, `{"result":1,"errmsg":"Error getting labels","errinfo":"Err: no pod"}`, 101, []string{"Contiv:Error getting labels", "Err: no pod", "API server"}},
		{"contiv's endpoint", 500, `{"result":1,"errmsg":"Error creating EP","errinfo":"Err: x"}`, 102, []string{"Contiv:Error creating EP", "Err: x", "netmaster"}},
		{"contiv's move", 500, `{"result":1,"errmsg":"Error moving to netns","errinfo":"Err: x"}`, 103, []string{"Contiv:Error moving to netns", "Err: x"}},
		{"contiv's attributes", 500, `{"result":1,"errmsg":"Error setting interface attributes","errinfo":"Err: x"}`, 104, []string{"Contiv:Error setting interface attributes", "Err: x"}},
		{"contiv's gateway", 500, `{"result":1,"errmsg":"Error setting default gateway","errinfo":"Err: x"}`, 105, []string{"Contiv:Error setting default gateway", "Err: x"}},
		{"an error that contiv does not have", 500, `{"result":1,"errmsg":"Moon","errinfo":"Err: full"}`, 100, []string{"Contiv:Moon", "Err: full"}},
		{"an error without words", 500, `{}`, 100, []string{"Contiv:internal server error"}},
		{"an error that is no JSON", 500, `oh`, 100, []string{"Contiv:internal server error"}},
		{"an error with 200", 200, `{"result":1,"errmsg":"Error creating EP","errinfo":"Err: x"}`, 102, []string{"Contiv:Error creating EP"}},
		{"an error of the agent, with its code", 500, `{"result":7,"errmsg":"bridge: key \"mtu\"","errinfo":"correct it"}`, 7, []string{"Contiv:bridge: key", "correct it"}},
		{"an error of the agent that may pass", 500, `{"result":11,"errmsg":"the lock is held","errinfo":"repeat it"}`, 11, []string{"the lock is held"}},
		{"403", 403, `{}`, 120, []string{"Contiv:access denied"}},
		{"404", 404, `404 page not found`, 121, []string{"Contiv:page not found"}},
		{"418", 418, `{}`, 122, []string{"418 I'm a teapot"}},
		{"503", 503, `{"result":11,"errmsg":"64 containers are being attached","errinfo":"repeat it"}`, 11, []string{"64 containers"}},
		{"success without an address", 200, `{"endpointid":"web"}`, 110, []string{"no address"}},
		{"success with an address that is none", 200, `{"ipaddress":"20.1.1.9"}`, 110, []string{"20.1.1.9"}},
		{"success that is no JSON", 200, `{"ipadd`, 11, []string{"no answer that can be read"}},
		{"success with another type", 200, `{"ipaddress":7}`, 11, []string{"ipaddress"}},
	} {
		rows = append(rows, row{name: fmt.Sprintf("an answer of the daemon (%s) is an error of code %d, and all is as before", c.name, c.code), test: func(l *lab) {
			d := l.netplugin(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "DelPod") {
					return
				}
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			})
			web := l.pod("web")
			before := l.now(web)
			l.code(web.add(conf(viaContiv), ofPod(web, "web")), c.code, c.says...)
			before.unchanged()
			want := []string{"ADD " + web.ID}
			if c.status == 200 || c.status == 500 { // it may have made something
				want = append(want, "DEL "+web.ID)
			}
			l.same(d.got(), want)
		}})
	}
	return rows
}

// contivSilence are about a daemon that does not answer. The row ends only if the call does.
func contivSilence() (rows []row) {
	accept := func(answer string) func(l *lab) {
		return func(l *lab) {
			l.listen(func(listener net.Listener) {
				ctx, stop := context.WithCancel(context.Background())
				l.Cleanup(func() { stop(); _ = listener.Close() })
				go func() {
					for {
						conn, err := listener.Accept()
						if err != nil {
							return
						}
						go func() {
							_, _ = conn.Read(make([]byte, 4096))
							_, _ = conn.Write([]byte(answer))
							if answer == "" {
								<-ctx.Done()
							}
							_ = conn.Close()
						}()
					}
				}()
			})
		}
	}
	for _, c := range []struct {
		name   string
		daemon func(l *lab)
		queued int // ADD has asked for something
	}{
		{"has no socket", func(*lab) {}, 0},
		{"has left its socket", func(l *lab) {
			l.listen(func(listener net.Listener) {
				listener.(*net.UnixListener).SetUnlinkOnClose(false)
				_ = listener.Close()
			})
		}, 0},
		{"has a file where its socket is", func(l *lab) { l.write(contivSocket, "") }, 0},
		{"accepts and is silent", accept(""), 1},
		{"hangs up", accept("\n"), 1},
		{"answers half a head", accept("HTTP/1.1 200 OK\r\nContent-"), 1},
		{"answers half a body", accept("HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n{\"ipaddress\":\"20.1.1."), 1},
		{"answers 10 MB", accept("HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n" + strings.Repeat(" ", 10_000_000)), 1},
		{"answers without end", accept("HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat(" ", 10_000_000)), 1},
		{"is another program", accept("220 mail ESMTP\r\n"), 1},
	} {
		rows = append(rows, row{name: "ADD by a daemon that " + c.name + " ends with code 11, and DEL succeeds", test: func(l *lab) {
			c.daemon(l)
			web := l.pod("web")
			r := l.process("ADD", web, quick, said(ofWeb))
			l.answered(r, 11, contivSocket)
			l.code(failure(r), 11)
			l.same(len(l.noted()), 0)
			l.same(len(l.deletions()), c.queued)
			l.quiet(l.process("DEL", web, quick, said(ofWeb)))
			l.same(len(l.deletions()), c.queued)
		}})
	}
	return append(rows, row{name: "DEL by a daemon that is silent ends, succeeds, and is done later", test: func(l *lab) {
		d, web := l.joined()
		web.network = conf(quick)
		d.stop()
		accept("")(l)
		l.must(web.del())
		l.same(len(l.deletions()), 1)
		l.same(len(l.noted()), 0)
	}}, row{name: "ADD waits for a daemon that is being started, and so does STATUS", test: func(l *lab) {
		web := l.pod("web")
		for _, verb := range []string{"STATUS", "ADD"} {
			plugin, call := l.prepare(verb, web, with(viaContiv, "cniVersion", `"1.1.0"`), said(ofWeb))
			cmd := l.host.PluginCommand(l, plugin, call)
			l.must(l.host.Start(cmd))
			d := l.netplugin(nil)
			l.must(cmd.Wait())
			d.stop()
		}
	}}, row{name: "ADD that is ended by a signal while the daemon is silent leaves the deletion to it", test: func(l *lab) {
		called := make(chan bool, 1)
		over := make(chan bool)
		d := l.netplugin(func(http.ResponseWriter, *http.Request) { called <- true; <-over })
		defer close(over)
		plugin, call := l.prepare("ADD", l.pod("web"), viaContiv, said(ofWeb))
		cmd := l.host.PluginCommand(l, plugin, call)
		l.must(l.host.Start(cmd))
		<-called
		d.stop()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		l.same(cmd.Wait() != nil, true)
		l.same(len(l.noted()), 0)
		l.same(len(l.deletions()), 1)
	}})
}

var contivDels = []row{
	{name: "DEL of an older sandbox of the same pod leaves the newer one alone", test: func(l *lab) {
		d := l.netplugin(nil)
		older, newer := l.pod("older"), l.pod("newer")
		l.must(older.add(conf(viaContiv), ofPod(older, "web")), newer.add(conf(viaContiv), ofPod(newer, "web")))
		before := newer.Snapshot(l)
		l.must(older.del(), older.del())
		l.same(before.Diff(newer.Snapshot(l)), "")
		l.must(newer.check())
		newer.pings("20.1.1.1")
		l.same(d.got(), []string{"ADD " + older.ID, "ADD " + newer.ID, "DEL " + older.ID, "DEL " + older.ID})
	}},
	{name: "a queued DEL of an older sandbox of the same pod leaves the newer one alone", test: func(l *lab) {
		d := l.netplugin(nil)
		older, newer := l.pod("older"), l.pod("newer")
		l.must(older.add(conf(viaContiv), ofPod(older, "web")))
		d.stop()
		l.must(older.del())
		d.start()
		l.must(newer.add(conf(viaContiv), ofPod(newer, "web")))
		l.same(len(l.deletions()), 0)
		l.must(newer.check())
		newer.pings("20.1.1.1")
		l.same(d.got(), []string{"ADD " + older.ID, "ADD " + newer.ID, "DEL " + older.ID})
	}},
	{name: "DEL of a container that is unknown succeeds, and leaves nothing, whatever the daemon does", test: func(l *lab) {
		never := l.never(conf(viaContiv), "never")
		ofPod(never, "never")(never.runtime)
		d := l.netplugin(nil)
		d.stop()
		before := l.now(never)
		l.must(never.del(), never.delBare())
		d.start()
		l.must(never.del(), never.delBare())
		d.refuse = never.ID
		l.must(never.del())
		d.stop()
		before.unchanged()
	}},
	{name: "DEL needs nothing but the container, the network and the interface", test: func(l *lab) {
		d := l.netplugin(nil)
		web := l.join(conf(with(viaContiv, "socket", text(contivSocket))), "web")
		web.Delete(l)
		l.forget()
		web.network = conf(with(viaContiv, "socket", `"/run/other.sock"`, "timeout", `"soon"`))
		l.must(web.delBare())
		p := d.requests()[1]
		l.same(p.body, `{"K8S_POD_NAME":"web","K8S_POD_NAMESPACE":"shop","K8S_POD_INFRA_CONTAINER_ID":"`+web.ID+`","CNI_IFNAME":"eth0"}`)
		l.same(len(l.noted())+len(l.deletions()), 0)
	}},
	{name: "DEL of what contiv's own plugin has attached goes by CNI_ARGS", test: func(l *lab) {
		d, web := l.joined()
		l.remove("/var/lib/cni/contivk8s")
		d.stop()
		l.must(web.del())
		l.same(len(l.deletions()), 1)
		d.start()
		l.must(l.pod("other").add(conf(viaContiv), args("IgnoreUnknown=1", "K8S_POD_NAMESPACE=shop", "K8S_POD_NAME=other")))
		l.same(d.requests()[2].pod.Name, "web")
	}},
	{name: "ADD and DEL leave nothing", test: func(l *lab) {
		l.netplugin(nil)
		before := l.now()
		web := l.join(conf(viaContiv), "web")
		l.must(web.del())
		web.Delete(l)
		before.unchanged()
	}},
	{name: "a DEL that can't be left for later fails", test: func(l *lab) {
		d, web := l.joined()
		d.stop()
		l.write("/var/lib/cni/contivk8s/deletions", "no directory")
		l.code(web.del(), 5)
		l.same(len(l.noted()), 1)
	}},
}

var contivQueue = []row{
	{name: "DEL with the daemon down succeeds, and the next call that reaches the daemon does it", test: func(l *lab) {
		for _, next := range []string{"ADD", "DEL", "GC"} {
			d := l.netplugin(nil)
			web, other := l.join(conf(viaContiv), "web"+next), l.join(conf(viaContiv), "other"+next)
			d.stop()
			l.must(web.del())
			l.same(len(l.deletions()), 1)
			l.same(len(l.noted()), 1)
			d.start()
			d.requests()
			switch next {
			case "ADD":
				l.join(conf(viaContiv), "more")
			case "DEL":
				l.must(other.del())
			case "GC":
				l.must(l.gc(conf(viaContiv), other))
			}
			l.shows(strings.Join(d.got(), "\n"), "DEL "+web.ID)
			l.same(len(l.files("/var/lib/cni/contivk8s/deletions")), 0)
			l.must(l.gc(conf(viaContiv)))
			l.same(len(l.noted()), 0)
			d.stop()
		}
	}},
	{name: "DEL with the daemon down is done later for a container that contiv's own plugin has attached", test: func(l *lab) {
		d := l.netplugin(nil)
		web := l.join(conf(viaContiv).in("0.2.0"), "web") // in which DEL has no result
		l.run("find /var/lib/cni/contivk8s -name *.json -delete")
		d.stop()
		l.must(web.del())
		l.same(len(l.deletions()), 1)
		d.start()
		l.join(conf(viaContiv), "more")
		l.shows(strings.Join(d.got(), "\n"), "DEL "+web.ID)
		l.same(len(l.deletions()), 0)
	}},
	{name: "DEL that finds no daemon asks again when the deletion is queued, since a daemon that starts reads the queue first", test: func(l *lab) {
		d, web := l.joined()
		l.run("ln " + contivSocket + " /run/contiv.sock")
		note := l.noted()[0]
		l.run("ln -s /run /var/lib/cni/run")
		l.write(note, strings.Replace(l.read(note), contivSocket, "/var/lib/cni/contivk8s/deletions/../../run/contiv.sock", 1)) // leads nowhere before
		l.must(web.del())
		l.same(d.got(), []string{"ADD " + web.ID, "DEL " + web.ID})
		l.same(len(l.deletions()), 0)
	}},
	{name: "DEL that the daemon fails at succeeds, and is tried again, but not at once", test: func(l *lab) {
		d, web := l.joined()
		d.refuse = web.ID
		l.must(web.del())
		l.same(len(l.deletions()), 1)
		d.refuse = ""
		d.requests()
		other := l.join(conf(viaContiv), "other")
		l.same(d.got(), []string{"ADD " + other.ID})
		l.tried("2001-02-03T04:05:06Z")
		l.must(other.del())
		l.same(d.got(), []string{"DEL " + other.ID, "DEL " + web.ID})
		l.same(len(l.deletions()), 0)
	}},
	{name: "a deletion that the daemon fails at for a day is given up", test: func(l *lab) {
		d := l.netplugin(nil)
		web, other := l.join(conf(viaContiv), "web"), l.join(conf(viaContiv), "other")
		d.refuse = web.ID
		l.must(web.del())
		l.tried("2001-02-03T04:05:06Z")
		path := l.deletions()[0]
		l.write(path, regexp.MustCompile(`"since":"[^"]*"`).ReplaceAllString(l.read(path), `"since":"2001-02-03T04:05:06Z"`))
		l.must(other.del())
		l.same(len(l.deletions()), 0)
	}},
	{name: "of many deletions that the daemon has not had a call sees to 16", test: func(l *lab) {
		d := l.netplugin(nil)
		var list []*container
		for i := range 20 {
			list = append(list, l.join(conf(viaContiv), fmt.Sprint("web", i)))
		}
		d.stop()
		for _, c := range list {
			l.must(c.del())
		}
		l.same(len(l.deletions()), 20)
		d.start()
		begun := time.Now()
		one := l.join(conf(viaContiv), "one")
		slow := time.Since(begun) > 5*time.Second // its call is stopped before it has seen to all that it may
		left := len(l.deletions())
		if slow && left >= 4 {
			return
		}
		l.same(left, 4)
		l.must(one.del())
		l.same(len(l.deletions()), 0)
	}},
	{name: "ADD of a container whose deletion the daemon has not had comes after that", test: func(l *lab) {
		d, web := l.joined()
		d.stop()
		web.run("ip link del eth0")
		l.must(web.del())
		d.start()
		d.requests()
		l.must(web.add(conf(viaContiv)))
		l.same(d.got(), []string{"DEL " + web.ID, "ADD " + web.ID})
		l.same(len(l.deletions()), 0)
		l.must(web.check())
	}},
	{name: "ADD of a container whose deletion the daemon does not answer is refused, to be tried again", test: func(l *lab) {
		d, web := l.joined()
		d.stop()
		web.run("ip link del eth0")
		l.must(web.del())
		d.look = func(p post) {
			if strings.HasSuffix(p.path, "DelPod") {
				panic(http.ErrAbortHandler)
			}
		}
		d.start()
		d.requests()
		l.code(web.add(conf(viaContiv)), 11)
		l.same(slices.Contains(d.got(), "ADD "+web.ID), false)
		l.same(len(l.deletions()), 1)
		d.stop()
		d.look = nil
		d.start()
		l.must(web.add(conf(viaContiv)), web.check())
		l.same(len(l.deletions()), 0)
	}},
	{name: "a deletion of a container that was attached anew since is dropped", test: func(l *lab) {
		d, web := l.joined()
		record := l.read(l.noted()[0])
		l.write("/var/lib/cni/contivk8s/deletions/"+filepath.Base(l.noted()[0]), regexp.MustCompile(`"since":"[^"]*"`).ReplaceAllString(record, `"since":"2001-02-03T04:05:06Z"`))
		d.requests()
		other := l.join(conf(viaContiv), "other")
		l.same(d.got(), []string{"ADD " + other.ID})
		l.same(len(l.deletions()), 0)
		l.must(web.check())
	}},
	{name: "a deletion for another daemon is left to that", test: func(l *lab) {
		d, web := l.joined()
		d.stop()
		l.must(web.del())
		path := l.deletions()[0]
		l.write(path, strings.Replace(l.read(path), contivSocket, "/run/other.sock", 1))
		l.run("ln -s " + contivSocket + " /run/other.sock")
		d.start()
		l.join(conf(viaContiv), "other")
		l.same(len(l.deletions()), 1)
	}},
	{name: "GC has the daemon delete what is not valid, and nothing else", test: func(l *lab) {
		d := l.netplugin(nil)
		valid, gone := l.join(conf(viaContiv), "valid"), l.join(conf(viaContiv), "gone")
		other := l.join(conf(viaContiv).called("other"), "other")
		gone.Delete(l)
		d.requests()
		l.must(l.gc(conf(viaContiv), valid))
		l.same(d.got(), []string{"DEL " + gone.ID})
		l.same(len(l.noted()), 2)
		l.must(valid.check(), other.check())
	}},
	{name: "GC with the daemon down leaves that for later, and removes files that are torn", test: func(l *lab) {
		d := l.netplugin(nil)
		l.join(conf(viaContiv), "gone").Delete(l)
		d.stop()
		l.write("/var/lib/cni/contivk8s/torn.json", "")
		l.run("cp " + l.noted()[0] + " /var/lib/cni/contivk8s/copy.json") // which is nobody's
		l.must(l.gc(conf(viaContiv)))
		l.same(len(l.noted()), 0)
		l.same(len(l.deletions()), 1)
		l.code(l.gc(conf(viaContiv)), 11)
		l.same(len(l.deletions()), 1)
	}},
}

// tried says of all deletions when the daemon failed at them.
func (l *lab) tried(when string) {
	for _, path := range l.deletions() {
		l.write(path, regexp.MustCompile(`"tried":"[^"]*"`).ReplaceAllString(l.read(path), `"tried":"`+when+`"`))
	}
}

// contivRefusals are ADDs that fail before the daemon is asked.
func contivRefusals() (rows []row) {
	for _, c := range []struct {
		name, config, args, says string
		code                     uint
		prepare                  string
	}{
		{name: "CNI_ARGS without a pod", args: "IgnoreUnknown=1", says: "K8S_POD_NAME", code: 4},
		{name: "no CNI_ARGS", says: "K8S_POD_NAME", code: 4},
		{name: "CNI_ARGS without a namespace", args: "K8S_POD_NAME=web", says: "K8S_POD_NAMESPACE", code: 4},
		{name: "an unknown key in CNI_ARGS that nobody says to ignore", args: "K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop;COLOUR=red", says: "COLOUR", code: 4},
		{name: "a socket whose path is relative", config: with(viaContiv, "socket", `"contiv.sock"`), says: `"socket"`, code: 7},
		{name: "a socket whose path is too long", config: with(viaContiv, "socket", text("/"+strings.Repeat("x", 107))), says: `"socket"`, code: 7},
		{name: "a timeout that is no number", config: with(viaContiv, "timeout", `"60s"`), says: `"timeout"`, code: 7},
		{name: "a timeout of nothing", config: with(viaContiv, "timeout", `0`), says: `"timeout"`, code: 7},
		{name: "a timeout that is too long", config: with(viaContiv, "timeout", `201`), says: `"timeout"`, code: 7},
		{name: "a container that has the interface", prepare: "ip link add eth0 type bridge", says: "eth0", code: 999},
	} {
		rows = append(rows, row{name: c.name + " is refused before the daemon is asked", test: func(l *lab) {
			d := l.netplugin(nil)
			web := l.pod("web")
			if c.prepare != "" {
				web.run(c.prepare)
			}
			if c.config == "" {
				c.config = viaContiv
			}
			if c.code != 4 {
				c.args = ofWeb
			}
			before := l.now(web)
			l.code(l.verb("ADD", web, c.config, said(c.args)), c.code, c.says)
			before.unchanged()
			l.same(d.got(), []string(nil))
		}})
	}
	return rows
}

// contivChecks attach a container, do it harm, and have CHECK find that.
func contivChecks() []row {
	attach := func(l *lab, _ ...string) *container {
		_, web := l.joined()
		return web
	}
	return checks("CHECK fails when ", attach, (*container).check, []event{
		{name: "the container's interface is gone", happens: inside("ip link del eth0"), says: "eth0"},
		{name: "the container's interface is down", happens: inside("ip link set eth0 down"), says: "down"},
		{name: "the container's interface has another MAC address", happens: inside("ip link set eth0 address 02:66:66:66:66:66"), says: "02:66:66:66:66:66"},
		{name: "the container's address is gone", happens: inside("ip address del 20.1.1.9/24 dev eth0"), says: "20.1.1.9"},
		{name: "the container's IPv6 address is gone", happens: inside("ip address del fd20::9/64 dev eth0"), says: "fd20::9"},
		{name: "the container's default route is gone", happens: inside("ip route del default"), says: "0.0.0.0/0"},
		{name: "a route of the container is gone", happens: inside("ip route del 10.60.0.0/16"), says: "10.60.0.0/16"},
		{name: "the host end is down", happens: onHost("ip link set vport9 down"), says: "vport9"},
		{name: "the host end has another name", happens: onHost("ip link set vport9 down", "ip link set vport9 name other0"), says: "other0"},
	})
}

var contivOthers = []row{
	{name: "success of a daemon that has done nothing is an error, and the daemon is told to delete it", test: func(l *lab) {
		d := l.netplugin(nil)
		d.keeps = true
		web := l.pod("web")
		before := l.now(web)
		l.code(web.add(conf(viaContiv), ofPod(web, "web")), 110, "eth0")
		before.unchanged()
		l.same(d.got(), []string{"ADD " + web.ID, "DEL " + web.ID})
	}},
	{name: "success of a daemon that has given the container no address, or has left it down, is an error", test: func(l *lab) {
		for harm, says := range map[string]string{"ip address flush dev eth0": "does not have the address", "ip link set eth0 down": "eth0 in /run/netns/weblink is down"} {
			web := l.pod("web" + strings.Fields(harm)[1])
			d := l.netplugin(nil)
			d.after = func() { web.run(harm) }
			l.code(web.add(conf(viaContiv), ofPod(web, "web")), 110, says)
			l.same(len(l.noted()), 0)
			d.stop()
		}
	}},
	{name: "CHECK succeeds where the daemon gives its links another MTU than the node's, as overlays need", test: func(l *lab) {
		web := l.pod("web")
		l.netplugin(nil).after = func() {
			web.run("ip link set eth0 mtu 1450")
			l.run("ip link set vport9 mtu 1450")
		}
		l.must(web.add(conf(viaContiv), ofPod(web, "web")), web.check())
		web.has("mtu", 1450)
	}},
	{name: "an interface that is no veth has no host end in the result", test: func(l *lab) {
		web := l.pod("web")
		l.netplugin(nil).after = func() {
			web.run("ip link del eth0", "ip link add eth0 type bridge", "ip address add 20.1.1.9/24 dev eth0")
			web.run("ip address add fd20::9/64 dev eth0 nodad", "ip link set eth0 up")
		}
		l.must(web.add(conf(viaContiv), ofPod(web, "web")))
		l.same(len(web.result.Interfaces), 1)
		l.same(*web.result.IPs[0].Interface, 0)
	}},
	{name: "the network's dns is in the result", test: func(l *lab) {
		l.netplugin(nil)
		l.same(text(l.join(conf(with(viaContiv, "dns", `{"nameservers":["192.0.2.53"]}`)), "web").result.DNS), `{"nameservers":["192.0.2.53"]}`)
	}},
	{name: "portmap and bandwidth behind it publish its ports, and limit it", test: func(l *lab) {
		outside := &l.outside().Namespace
		l.netplugin(nil)
		l.run("sysctl -w net.ipv4.ip_forward=1")
		n := conf(viaContiv, `{"type":"portmap","capabilities":{"portMappings":true}}`, `{"type":"bandwidth","ingressRate":8000000,"ingressBurst":8000000}`)
		web := l.join(n, "web", ports("8080:80/tcp"))
		l.serve(&web.Namespace, 80)
		l.answers(tcp(outside, netlab.HostIPv4, 8080), "web")
		l.shows(l.run("tc qdisc show dev vport9"), "tbf")
		l.must(web.check(), web.del())
		l.same(len(l.noted()), 0)
	}},
	{name: "another socket is called if the configuration names it", test: func(l *lab) {
		d := l.netplugin(nil)
		l.run("mv " + contivSocket + " /run/other.sock")
		web := l.join(conf(with(viaContiv, "socket", `"/run/other.sock"`)), "web")
		l.must(web.del())
		l.same(d.got(), []string{"ADD " + web.ID, "DEL " + web.ID})
	}},
	{name: "a container has several", test: func(l *lab) {
		d, web := l.joined()
		d.mu.Lock()
		d.endpoints = map[string]string{"x": "", "y": ""}
		d.mu.Unlock()
		net1 := web.another()
		l.must(net1.add(conf(viaContiv), ifname("net1"), ofPod(net1, "web")), net1.check(), net1.del(), web.check())
	}},
	{name: "STATUS has code 50 without the daemon, says which socket that is, and changes nothing", test: func(l *lab) {
		d := l.netplugin(nil)
		l.must(l.status(conf(viaContiv)))
		l.same(d.got(), []string(nil))
		d.stop()
		before := l.now()
		l.code(l.status(conf(viaContiv)), 50, contivSocket)
		before.unchanged()
	}},
	{name: "STATUS of a wrong configuration has code 7", test: func(l *lab) { l.code(l.status(conf(with(viaContiv, "timeout", "0"))), 7) }},
}
