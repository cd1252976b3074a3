// Command cnibox-etcd is the IPAM plugin etcd: a program of its own, since the client of etcd is larger than all other plugins together.
package main

import (
	"os"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/box"
	"github.com/cnibox/cnibox/plugins/ipam/etcd"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/settings"
)

const help = `The CNI plugin that hands out addresses which several hosts share, from an
etcd cluster. Networks call it by ipam.type "etcd". cnictl asks it, with a
verb and a configuration on standard input: list, keep, import and export.`

var row = settings.Row(etcd.Plugin{})

func main() {
	if len(os.Args) > 1 && os.Getenv("CNI_COMMAND") == "" {
		if verb := verbs[os.Args[1]]; verb != nil {
			os.Exit(answer(verb, os.Args[2:]))
		}
	}
	b := &box.Box{Log: calllog.Dir, Help: help, Plugins: plugin.Table{row}}
	os.Exit(b.Main(box.OS()))
}
