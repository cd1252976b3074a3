package ui

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/node/runtimes"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
)

// environment says in every command's help which variables it reads; they are those of cnitool.
const environment = `
Environment, where no flag is given: NETCONFPATH (directory of networks),
CNI_PATH (directories of plugins, separated by ':'), CNI_IFNAME; and CNI_ARGS
(KEY=VALUE;KEY=VALUE) and CAP_ARGS (JSON: capability to value) for the plugins.`

// usualBinDirs are where cnibox may be: `cnictl install` and the package cnibox-opt have the first, the package cnibox has one of the others.
var usualBinDirs = []string{node.DefaultBinDir, "/usr/lib/cni", "/usr/libexec/cni"}

// BinDirs returns the directories of plugins where no flag says so.
func BinDirs() string {
	if path := os.Getenv("CNI_PATH"); path != "" {
		return path
	}
	for _, dir := range usualBinDirs {
		if _, err := os.Stat(filepath.Join(dir, pluginfile.Binary)); err == nil {
			return dir
		}
	}
	return node.DefaultBinDir
}

// AddNodeFlags gives a command the flags of all that call plugins.
func AddNodeFlags(cmd *cobra.Command, n *network.Node) {
	cmd.Long += environment
	flags := cmd.Flags()
	flags.StringVar(&n.ConfDir, "conf-dir", cmp.Or(os.Getenv("NETCONFPATH"), node.DefaultConfDir), "directory of networks")
	flags.StringVar(&n.BinDirs, "bin-dir", BinDirs(), "directories of plugins, separated by ':'")
	flags.Lookup("bin-dir").DefValue = "the first with cnibox of " + strings.Join(usualBinDirs, ", ") // the same on every machine
	flags.StringVar(&n.CacheDir, "cache-dir", libcni.CacheDir, "directory in which libcni keeps results")
}

// AddLookFlags gives a command the flags of those that look at the node.
func AddLookFlags(cmd *cobra.Command, o *node.Options) {
	o.Runtimes = runtimes.All
	flags := cmd.Flags()
	flags.StringVar(&o.ConfDir, "conf-dir", cmp.Or(os.Getenv("NETCONFPATH"), node.DefaultConfDir), "directory of networks")
	flags.StringArrayVar(&o.CacheDirs, "cache-dir", nil, "one more directory in which libcni keeps results, besides "+strings.Join(node.CacheDirs, " and ")+"; repeatable")
}

// Arguments takes from least to most positional arguments, which are called as in the usage line.
func Arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return Usagef("an argument is missing: %s", cmd.UseLine())
		case len(args) > most:
			return Usagef("%q is one argument too many: %s", args[most], cmd.UseLine())
		}
		return nil
	}
}
