package operator

import (
	"fmt"
	"strings"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// installed has cnictl install the plugins in the place of the links that a node has.
func installed(link string) func(p *clinic) {
	return func(p *clinic) {
		p.Helper()
		p.shell("rm -r " + netlab.PluginDir)
		p.install(link)
	}
}

// adds reports whether a new pod can be attached.
func adds(p *clinic, _ time.Duration) error {
	pod := p.host.NewPod(p, fmt.Sprint("new", time.Now().UnixNano()))
	if code, printed := p.cnictl("add", "demo", pod.Path()); code != 0 {
		return fmt.Errorf("add: %s", printed)
	}
	p.must("del", "demo", pod.Path())
	return nil
}

// faultsOfPlugins are those of the files of plugins.
var faultsOfPlugins = []fault{
	{code: "plugin-missing", before: installed("stub"), plant: shell("rm /opt/cni/bin/portmap /opt/cni/bin/host-local"), works: adds},
	{code: "plugin-missing", kind: "a link to nothing", before: installed("stub"), plant: shell("ln -sf /opt/cni/nothing /opt/cni/bin/bridge"), works: adds},
	{code: "plugin-not-executable", before: installed("copy"), plant: shell("chmod 644 /opt/cni/bin/bridge"), works: adds},
	{code: "plugin-not-executable", kind: "a stub", before: installed("stub"), plant: shell("chmod 644 /opt/cni/bin/tuning"), works: adds},
	{code: "plugin-foreign", before: installed("copy"), plant: shell("printf '#!/bin/sh\\necho {}' >/opt/cni/bin/new; chmod +x /opt/cni/bin/new; mv /opt/cni/bin/new /opt/cni/bin/tuning"),
		says: "# ask who has put it there; if nobody needs it: cnictl install --dir /opt/cni/bin --only tuning --force", remedy: func(p *clinic) { p.must("install", "--dir", netlab.PluginDir, "--only", "tuning", "--force") }},
	{code: "plugin-half-updated", before: installed("copy"), plant: shell("cp /opt/cni/bin/portmap /opt/cni/bin/new; printf old >>/opt/cni/bin/new; mv /opt/cni/bin/new /opt/cni/bin/portmap")},
	{code: "plugin-alone", before: installed("stub"), plant: func(p *clinic) {
		p.shell("rm /opt/cni/bin/cnibox; cp " + netlab.Reference(p) + "/host-local /opt/cni/bin/new; mv /opt/cni/bin/new /opt/cni/bin/host-local")
	}, works: adds},
	{code: "plugin-wrong-name", before: installed("stub"), plant: func(p *clinic) { p.shell("cp -f " + netlab.Debian(p) + "/vlan /opt/cni/bin/tuning") }, works: adds},
	{code: "plugin-wrong-name", kind: "the program that stubs run", before: installed("stub"), plant: func(p *clinic) {
		p.shell("cp " + netlab.Debian(p) + "/vlan /opt/cni/bin/new; mv /opt/cni/bin/new /opt/cni/bin/cnibox")
	}, works: adds},
	{code: "plugin-wrong-name", kind: "a program that was cut short", before: installed("stub"), plant: shell("head -c 1000000 /opt/cni/bin/cnibox >/opt/cni/bin/new; chmod 755 /opt/cni/bin/new; mv /opt/cni/bin/new /opt/cni/bin/cnibox"), works: adds},
	{code: "plugin-one-file", kind: "links to elsewhere", before: installed("stub"), plant: shell("mkdir /opt/cni/elsewhere; cp /opt/cni/bin/cnibox /opt/cni/elsewhere; ln -sf /opt/cni/elsewhere/cnibox /opt/cni/bin/bridge; ln -sf /opt/cni/elsewhere/cnibox /opt/cni/bin/tuning")},
	{code: "plugin-one-file", before: installed("stub"), plant: shell("ln -sf cnibox /opt/cni/bin/bridge; ln -f /opt/cni/bin/cnibox /opt/cni/bin/tuning")},
	{code: "plugin-noexec", works: adds, before: installed("stub"), plant: shell("cp -a /opt/cni/bin /opt/cni/copy; mount -t tmpfs -o noexec tmpfs /opt/cni/bin; cp -a /opt/cni/copy/. /opt/cni/bin")},
	{code: "plugin-shadowed", before: func(p *clinic) {
		p.shell("mkdir -p /run/first")
		p.write("/etc/containerd/config.toml", strings.NewReplacer("'", `"`).Replace(`version = 3
			[plugins.'io.containerd.cri.v1.runtime'.cni]
			bin_dirs = ['/run/first', '/opt/cni/bin']
			conf_dir = '/etc/cni/net.d'
		`))
	}, plant: func(p *clinic) { p.shell("cp " + netlab.Debian(p) + "/bridge /run/first") }},
}
