package ui

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/node/containers"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/plugins/known"
)

// environment says in every command's help which variables it reads; they are those of cnitool.
const environment = `
Environment, where no flag is given: NETCONFPATH (directory of networks) and
CNI_PATH (directories of plugins, separated by ':').`

// usualBinDirs are where cnibox may be: `cnictl install` and the package cnibox-opt have the first, the package cnibox has one of the others.
var usualBinDirs = []string{node.DefaultBinDir, "/usr/lib/cni", "/usr/libexec/cni"}

// UsualBinaries are where cnibox may be, by the file's name.
func UsualBinaries() (paths []string) {
	for _, dir := range usualBinDirs {
		paths = append(paths, filepath.Join(dir, pluginfile.Binary))
	}
	return paths
}

// BinDirs returns the directories of plugins where no flag says so.
func BinDirs() string {
	if path := os.Getenv("CNI_PATH"); path != "" {
		return path
	}
	for _, path := range UsualBinaries() {
		if _, err := os.Stat(path); err == nil {
			return filepath.Dir(path)
		}
	}
	return node.DefaultBinDir
}

// AddNodeFlags gives a command the flags of all that read networks, plugins or caches.
func AddNodeFlags(cmd *cobra.Command, o *node.Options) { addNodeFlags(cmd, o, true) }

// AddWaitingNodeFlags gives the same to a command that waits for the directory of networks if it is not there.
func AddWaitingNodeFlags(cmd *cobra.Command, o *node.Options) { addNodeFlags(cmd, o, false) }

func addNodeFlags(cmd *cobra.Command, o *node.Options, isThere bool) {
	cmd.Long += environment
	o.ConfDir, o.BinDirs, o.CacheDirs = cmp.Or(os.Getenv("NETCONFPATH"), node.DefaultConfDir), filepath.SplitList(BinDirs()), []string{libcni.CacheDir}
	o.Plugins, o.Runtimes = known.Plugins, containers.Runtimes
	flags := cmd.Flags()
	flags.Var(&directory{path: &o.ConfDir, isThere: isThere}, "conf-dir", "directory of networks")
	flags.Var(&directories{&o.BinDirs, false}, "bin-dir", "directory of plugins; repeatable, or several separated by ':'")
	flags.Lookup("bin-dir").DefValue = "the first with cnibox of " + strings.Join(usualBinDirs, ", ") // the same on every machine
	flags.Var(&directories{&o.CacheDirs, false}, "cache-dir", "directory in which libcni keeps results, besides "+strings.Join(node.CacheDirs, " and ")+
		", which are read in any case; repeatable: new results go to the first")
}

// directory is the value of a flag for one directory.
type directory struct {
	path    *string
	isThere bool // or else it can't be set
	isSet   bool
}

func (d *directory) String() string { return *d.path }
func (d *directory) Type() string   { return "dir" }

func (d *directory) Set(path string) error {
	if d.isSet {
		return fmt.Errorf("it is given twice, and there can be only one")
	}
	if d.isThere {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			return fmt.Errorf("there is no such directory")
		}
	}
	*d.path, d.isSet = path, true
	return nil
}

// directories is the value of a flag for several directories. The first that is given takes the place of the default.
type directories struct {
	list  *[]string
	isSet bool
}

func (d *directories) String() string { return strings.Join(*d.list, string(os.PathListSeparator)) }
func (d *directories) Type() string   { return "dirs" }

func (d *directories) Set(paths string) error {
	if !d.isSet {
		*d.list = nil
	}
	*d.list, d.isSet = append(*d.list, filepath.SplitList(paths)...), true
	return nil
}

// AddNetworkFlag gives a command the flag that limits it to a network.
func AddNetworkFlag(cmd *cobra.Command, name *string, does string) {
	cmd.Flags().Var((*networkName)(name), "network", does)
	Complete(cmd, "network", CompleteNetwork)
}

// networkName is the value of --network. An empty one, such as of a variable of a script that is not set, would mean all networks.
type networkName string

// Set implements pflag.Value.
func (n *networkName) Set(value string) error {
	if value == "" {
		return errors.New("no network is named; without --network it is all of them")
	}
	*n = networkName(value)
	return nil
}

// String implements pflag.Value.
func (n *networkName) String() string { return string(*n) }

// Type implements pflag.Value.
func (n *networkName) Type() string { return "string" }

// NetworkArgument takes one argument at most, which is short for the flag --network.
func NetworkArgument(cmd *cobra.Command, args []string) error {
	if err := Arguments(0, 1)(cmd, args); err != nil || len(args) == 0 {
		return err
	}
	if cmd.Flags().Changed("network") {
		return Usagef("%q is short for --network, which is given, too", args[0])
	}
	return cmd.Flags().Set("network", args[0])
}

// AddApplyFlag gives a command that only lists what it would do the flag that has it done, and the one that says again that it is not.
func AddApplyFlag(cmd *cobra.Command, isApplied *bool, does string) {
	cmd.Flags().BoolVar(isApplied, "apply", false, does)
	AddDryRunFlag(cmd, new(bool))
}

// AddDryRunFlag gives a command that acts at once the flag that has it only say what it would do.
func AddDryRunFlag(cmd *cobra.Command, isDry *bool) {
	cmd.Flags().BoolVar(isDry, "dry-run", false, "change nothing, and say what would be done")
}

// AddOtherName has a command take a flag by another name, too.
func AddOtherName(cmd *cobra.Command, other, name string) {
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == other {
			given = name
		}
		return pflag.NormalizedName(given)
	})
}

// Arguments takes from least to most positional arguments, which are called as in the usage line.
func Arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return Usagef("an argument is missing: %s", cmd.UseLine())
		case slices.Contains(args[:min(len(args), most)], ""): // such as a variable of a script that is not set
			return Usagef("an argument is empty: %s", cmd.UseLine())
		case len(args) > most:
			return Usagef("%q is one argument too many: %s", args[most], cmd.UseLine())
		}
		return nil
	}
}
