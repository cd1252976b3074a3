// Package install puts cnibox and a file for each plugin into a directory of CNI plugins, and takes them away again.
//
// No file there is written in place. Each is made in a directory beside the others and renamed over its name when all of them
// are on the disk: a runtime that executes plugins meanwhile finds each name, old or new. An installation that was stopped on
// its way can be repeated, or uninstalled.
//
// The other names in the directory belong to cnibox:
//
//	.cnibox.json         the names that install has made
//	.cnibox-replaced/    the files of others that they took the place of
//	.cnibox-staging-*/   only while install runs
package install

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/operator/runtimes"
	"github.com/cnibox/cnibox/plugins/known"
)

func New() *cobra.Command {
	var (
		o       Options
		runtime string
		repair  bool
	)
	cmd := &cobra.Command{
		Use:   "install --dir DIR | --for RUNTIME",
		Short: "Install cnibox and its plugins into a directory",
		Long: `Install cnibox and a file for each of its plugins into a directory, or bring
those that are there to this version. Files are only ever renamed into place, so
runtimes may use the directory meanwhile; one that was stopped can be repeated.

Each plugin is a file of its own, and nothing leads out of the directory. Most are
stubs of some hundred bytes that run the cnibox beside them. host-local is a whole
copy: stubs run it where cnibox was not copied with them. So whoever writes over a
plugin's name (cp -f flannel /opt/cni/bin/flannel) changes that plugin alone. With
--link copy all are whole copies.

The plugin etcd is a program of its own, cnibox-etcd. It is installed if it lies
beside the cnibox that is.

Files of others, such as the reference plugins, are not overwritten unless you
say --force. They are then kept in DIR/.cnibox-replaced, and uninstall brings
them back. A plugin that another installer has written over stays that one's, too.

With --network a network's file is installed after the plugins, so that a runtime
that sees it finds them. Of a directory it is all files NAME.conflist, if any.

With --for the directory is one in which that runtime looks for plugins, by its
own configuration on this node: the one that has cnibox, or else the first that is
there.`,
		Example: `  cnictl install --dir /opt/cni/bin
  cnictl install --for podman
  cnictl install --dir /opt/cni/bin --only bridge,host-local,portmap,loopback
  cnictl install --dir /opt/cni/bin --from ./bin/cnibox --force
  cnictl install --dir /opt/cni/bin --repair`,
		Args: ui.Arguments(0, 0),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Dir, "dir", "", "the directory that runtimes look for plugins in, which other commands call --bin-dir")
	ui.AddOtherName(cmd, "bin-dir", "dir")
	flags.StringVar(&runtime, "for", "", "install where a runtime looks for plugins: "+strings.Join(runtimes.Names(), ", "))
	flags.StringVar(&o.From, "from", usualFrom(), "the cnibox to install")
	flags.Lookup("from").DefValue = "the one beside cnictl, or that of a package" // in help and manual pages, which are the same on every machine
	flags.StringVar((*string)(&o.Link), "link", string(Links[0]), "what the plugins' files are: stub or copy")
	flags.StringSliceVar(&o.Names, "only", known.Plugins.Names(), "install only these plugins, separated by commas; those of an earlier install stay")
	flags.BoolVar(&repair, "repair", false, "put back what install had made and is gone or damaged, and nothing else")
	flags.BoolVar(&o.Force, "force", false, "replace files of others, and keep them for uninstall")
	addNetworkFlags(cmd, &o.Network, &o.NetworkDir)
	ui.AddJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := chooseDir(cmd.ErrOrStderr(), &o, runtime); err != nil {
			return err
		}
		if err := checkOptions(&o); err != nil {
			return err
		}
		if repair {
			if err := addInstalled(cmd, &o); err != nil {
				return err
			}
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(o.From), pluginfile.EtcdBinary)); err != nil && !cmd.Flags().Changed("only") && !repair {
			o.Names = slices.DeleteFunc(o.Names, func(name string) bool { return name == Etcd })
		}
		r, err := Install(o)
		if err != nil {
			return err
		}
		err = ui.Output(cmd, ui.Files{Files: r.Files}, r.describeAll)
		if r.NoExec {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %s is mounted noexec: a runtime that sees it so can't execute the plugins; mount it with exec there, or choose another directory\n", r.Dir)
		}
		return err
	}
	return cmd
}

// usualFrom returns the cnibox beside cnictl, or else that of a package, whose cnictl is in /usr/bin.
func usualFrom() string {
	self, _ := os.Executable()
	beside := filepath.Join(filepath.Dir(self), pluginfile.Binary)
	for _, path := range append([]string{beside}, ui.UsualBinaries()...) {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return beside
}

// addInstalled makes the plugins those that were installed before.
func addInstalled(cmd *cobra.Command, o *Options) error {
	if cmd.Flags().Changed("only") || o.Force {
		return ui.Usagef("--repair excludes --only and --force: it puts back what was installed, and leaves what others have put there")
	}
	d, err := open(o.Dir)
	if err != nil {
		return err
	}
	defer d.close()
	if o.Names, err = d.readManifest(); err == nil && o.Names == nil {
		err = fmt.Errorf("%s has no %s: cnictl has installed nothing there", d.path, manifestFile)
	}
	return err
}

// describeAll says what was done.
func (r *Report) describeAll(w io.Writer) {
	if r.Unchanged {
		fmt.Fprintf(w, "%s is up to date\n", r.Dir)
	} else {
		fmt.Fprintf(w, "installed cnibox and %s in %s\n", ui.Counted(len(r.Names), "plugin"), r.Dir)
	}
	printNames(w, "  plugins:  %s\n", r.Names)
	printNames(w, "  networks: %s\n", r.Networks)
	printNames(w, "  replaced: %s; uninstall brings them back\n", r.Replaced)
	printNames(w, "  left:     %s, written by another installer since; --force takes it over\n", r.Left)
}

// chooseDir takes the directory from a runtime, if one is named, and says why.
func chooseDir(w io.Writer, o *Options, runtime string) error {
	switch {
	case runtime == "":
		return nil
	case o.Dir != "":
		return ui.Usagef("--dir excludes --for, which finds the directory")
	}
	r, err := ui.FindRuntime(runtime)
	if err != nil {
		return err
	}
	o.Dir = r.BinDir()
	fmt.Fprintf(w, "%s looks for plugins in %s, %s\n", r.Name, strings.Join(r.BinDirs, ", "), r.Says())
	return nil
}

// printNames prints a line with the names, if there are any.
func printNames(w io.Writer, format string, names []string) {
	if names != nil {
		fmt.Fprintf(w, format, strings.Join(names, " "))
	}
}

// addNetworkFlags adds what names a network's file that comes with the plugins.
func addNetworkFlags(cmd *cobra.Command, file, dir *string) {
	cmd.Flags().StringVar(file, "network", "", "a network's file, NAME.conflist, that goes with the plugins, or a directory of such")
	cmd.Flags().StringVar(dir, "network-dir", "/etc/cni/net.d", "the directory that runtimes look for networks in")
}

func requireDir(dir string) error {
	if dir == "" {
		return ui.Usagef("--dir is missing: name the directory of plugins, usually --dir /opt/cni/bin; install also finds it by itself with --for RUNTIME")
	}
	return nil
}

func checkOptions(o *Options) error {
	if err := requireDir(o.Dir); err != nil {
		return err
	}
	if !slices.Contains(Links, o.Link) {
		return ui.Usagef("--link %s: it is stub or copy", o.Link)
	}
	for _, name := range o.Names {
		if known.Plugins.Find(name) == nil {
			return ui.Usagef("--only %s: cnibox has no such plugin; cnictl list shows them", name)
		}
	}
	return nil
}

func NewUninstall() *cobra.Command {
	var dir, network, networkDir string
	cmd := &cobra.Command{
		Use:   "uninstall --dir DIR",
		Short: "Remove what install made, and bring back what it replaced",
		Long: `Remove from a directory what install made there, and bring back the files it
replaced. Files that others have put there are left alone.

With --network the network's file is removed first, if it is still the one that
install has put there.`,
		Example: "  cnictl uninstall --dir /opt/cni/bin",
		Args:    ui.Arguments(0, 0),
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the directory of plugins, which other commands call --bin-dir")
	ui.AddOtherName(cmd, "bin-dir", "dir")
	addNetworkFlags(cmd, &network, &networkDir)
	ui.AddJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := requireDir(dir); err != nil {
			return err
		}
		var networks []ui.File
		if network != "" {
			var err error
			if networks, err = UninstallNetwork(network, networkDir); err != nil {
				return err
			}
		}
		r, err := Uninstall(dir)
		if r == nil {
			return err
		}
		d := ui.Files{Files: slices.Concat([]ui.File{}, networks, r.Files)}
		if err != nil {
			d.Error = err.Error()
		}
		return cmp.Or(ui.Output(cmd, d, r.describe), ui.Errors(cmd, []error{err}))
	}
	return cmd
}

// describe says what was done.
func (r *Removal) describe(w io.Writer) {
	fmt.Fprintf(w, "removed %s from %s\n", ui.Counted(len(r.names(ui.Removed)), "file"), r.Dir)
	printNames(w, "  brought back: %s\n", r.names(ui.Restored))
	printNames(w, "  left, since they are not cnibox's any more: %s\n", r.names(ui.Left))
	printNames(w, "  what install had replaced at these names is still in .cnibox-replaced: %s\n", r.Kept)
}
