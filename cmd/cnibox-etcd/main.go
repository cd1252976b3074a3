// Command cnibox-etcd is the IPAM plugin etcd: a program of its own, since the client of etcd is larger than all other plugins together.
package main

import (
	"os"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/box"
	"github.com/cnibox/cnibox/plugins/ipam/etcd"
)

const help = `The CNI plugin that hands out addresses which several hosts share, from an
etcd cluster. Networks call it by ipam.type "etcd".`

func main() {
	b := &box.Box{Log: calllog.Dir, Help: help, Plugins: plugin.Table{etcd.Row}}
	os.Exit(b.Main(box.OS()))
}
