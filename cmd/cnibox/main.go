// No call lasts until a change of its CPU limit would matter.
//go:debug updatemaxprocs=0

// Command cnibox is every CNI plugin in one binary: the name it is called by
// picks the plugin.
package main

import (
	"os"

	_ "github.com/cnibox/cnibox/cmd/cnibox/singlethread"
	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/process/box"
	"github.com/cnibox/cnibox/pkg/process/detach"
	"github.com/cnibox/cnibox/plugins"
	"github.com/cnibox/cnibox/plugins/ipam/dhcp/daemon"
	"github.com/cnibox/cnibox/plugins/main/tap"
)

const help = `Every CNI plugin a Linux node needs, in one binary. Container runtimes call it
by the names of its plugins, through files in /opt/cni/bin that "cnictl install"
makes; "cnibox PLUGIN" does the same. A name may have a prefix that ends in "-".`

func main() {
	detach.Serve()
	tap.ServeLabelled()
	daemon.Serve(plugins.All)
	b := &box.Box{Plugins: plugins.All, Help: help, Log: calllog.Dir}
	os.Exit(b.Main(box.OS()))
}
