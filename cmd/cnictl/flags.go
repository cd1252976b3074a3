package main

import (
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
)

// environment says in every command's help which variables it reads; they are
// those of cnitool.
const environment = `
Environment, where no flag is given: NETCONFPATH (directory of networks),
CNI_PATH (directories of plugins, separated by ':'), CNI_IFNAME; and CNI_ARGS
(KEY=VALUE;KEY=VALUE) and CAP_ARGS (JSON: capability to value) for the plugins.`

// nodeFlags are the flags of every command that calls plugins.
type nodeFlags struct {
	confDir, binDirs, cacheDir string
}

func (f *nodeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.confDir, "conf-dir", either("NETCONFPATH", network.DefaultConfDir), "directory of networks")
	flags.StringVar(&f.binDirs, "bin-dir", either("CNI_PATH", network.DefaultBinDir), "directories of plugins, separated by ':'")
	flags.StringVar(&f.cacheDir, "cache-dir", libcni.CacheDir, "directory in which libcni keeps results")
}

func (f *nodeFlags) node(cmd *cobra.Command) network.Node {
	return network.Node{
		ConfDir: f.confDir, BinDirs: filepath.SplitList(f.binDirs), CacheDir: f.cacheDir,
		Stderr: cmd.ErrOrStderr(),
	}
}

// attachmentFlags are the flags of the commands about one attachment.
type attachmentFlags struct {
	nodeFlags
	netns, id, ifName string
	publish           []string
}

func (f *attachmentFlags) add(cmd *cobra.Command) {
	f.nodeFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.ifName, "ifname", "i", either("CNI_IFNAME", "eth0"), "the interface's name in the container")
	flags.StringArrayVarP(&f.publish, "publish", "p", nil, "publish a port, [hostIP:]hostPort:containerPort[/tcp|udp|sctp]; repeatable")
}

// addNamespace adds the flags that name a container which is there already.
func (f *attachmentFlags) addNamespace(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.netns, "netns", "", "path of the container's network namespace, if not given as NETNS")
	flags.StringVar(&f.id, "id", "", "container id (default: cnitool's, made from the path of the namespace)")
}

// parameters returns what the flags, NETWORK [NETNS] and the environment say.
func (f *attachmentFlags) parameters(args []string) (network.Parameters, error) {
	p := network.Parameters{
		Netns: f.netns, ID: f.id, IfName: f.ifName,
		Args: os.Getenv("CNI_ARGS"), CapArgs: os.Getenv("CAP_ARGS"), Publish: f.publish,
	}
	if len(args) < 2 {
		return p, nil
	}
	if p.Netns != "" && p.Netns != args[1] {
		return p, usagef("two namespaces are given: %s and --netns %s", args[1], p.Netns)
	}
	p.Netns = args[1]
	return p, nil
}

// either returns an environment variable's value, or another where it is not
// set.
func either(variable, otherwise string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return otherwise
}
