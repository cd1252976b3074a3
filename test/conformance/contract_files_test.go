package conformance

import (
	"strings"

	"github.com/cnibox/cnibox/test/netlab"
)

// fileRows are about files whose paths configurations have, or that others can write: they may be anything.
func fileRows() (rows []row) {
	const tuned = `{"type":"tuning","mtu":1400}`
	record := func(c *container) string { return "/run/cni/tuning/" + c.ID + "_eth0.json" }
	const waits = "reads whatever is there, and waits for a pipe"
	for _, f := range []struct {
		file, verb, config string
		path               func(c *container) string
		before             func(l *lab, c *container)
	}{
		{file: "host-local's resolvConf", verb: "ADD", config: with(lan, "ipam", `{"type":"host-local","subnet":"10.44.0.0/24","resolvConf":"/run/resolv.conf"}`),
			path: func(*container) string { return "/run/resolv.conf" }},
		{file: "flannel's subnetFile", verb: "ADD", config: pods, path: func(*container) string { return subnetFile }},
		{file: "flannel's file for DEL", verb: "DEL", config: pods, path: (*container).keptFile},
		{file: "tuning's allowlist", verb: "ADD", config: with(tuned, "sysctl", `{"net.core.somaxconn":"256"}`, "prevResult", handedOn("1.0.0")),
			path: func(*container) string { return "/etc/cni/tuning/allowlist.conf" }},
		{file: "tuning's record for DEL", verb: "DEL", config: tuned, path: record, before: func(l *lab, c *container) { l.must(c.add(conf(lan))) }},
	} {
		rows = append(rows, row{name: "a device, a pipe or 4 GiB in the place of " + f.file + " is an error that names it", differs: waits, test: func(l *lab) {
			c := l.pod("web")
			if f.before != nil {
				f.before(l, c)
			}
			path := f.path(c)
			l.write(path, "")
			for _, command := range []string{"ln -s /dev/zero ", "mkfifo ", "truncate -s 4G "} {
				l.run("rm -f "+path, command+path)
				r, ended := l.under("prlimit --data=400000000 --core=0", f.verb, c, f.config)
				if ended == "" {
					l.refused(failure(r), path)
				}
			}
		}})
	}
	return append(rows,
		row{name: "a pipe in the place of a lease, or of libcni's result of its container, is not waited for", differs: waits, test: func(l *lab) {
			const one = `{"type":"bridge","bridge":"lan0","ipam":{"type":"host-local","subnet":"10.44.0.0/29","rangeStart":"10.44.0.2","rangeEnd":"10.44.0.3"}}`
			c := l.attach(conf(one), "web")
			l.run("mkfifo " + leaseDir + "10.44.0.3")
			result := l.files("/var/lib/cni/results/*")[0]
			l.run("rm "+result, "mkfifo "+result)
			for _, pod := range []string{"second", "third"} {
				if r, ended := l.under("prlimit --data=400000000 --core=0", "ADD", l.pod(pod), one); ended == "" && r.ExitCode != 0 {
					l.refused(failure(r), "10.44.0.")
				}
			}
			_, _ = l.under("prlimit --data=400000000 --core=0", "ADD", c, one)
		}},
		row{name: "GC takes valid attachments with any interface names", test: func(l *lab) {
			c := l.attach(conf(lan, `{"type":"portmap"}`, `{"type":"firewall"}`).in("1.1.0"), "web")
			valid := `[{"containerID":` + text(c.ID) + `,"ifname":"eth0"}`
			for _, length := range []int{1, 16, 100, 120, 128, 1000} {
				valid += `,{"containerID":"b","ifname":"` + strings.Repeat("x", length) + `"}`
			}
			before := l.now(c)
			l.must(l.each("GC", nil, c.network, func(call *netlab.PluginCall) {
				call.Config = with(call.Config.(string), "cni.dev/valid-attachments", valid+"]")
			}))
			before.unchanged()
		}},
	)
}
