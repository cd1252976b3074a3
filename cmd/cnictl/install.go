package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/install"
	"github.com/cnibox/cnibox/plugins"
)

func newInstall() *cobra.Command {
	var (
		o    install.Options
		link string
		only []string
	)
	cmd := &cobra.Command{
		Use:   "install --dir DIR",
		Short: "Install cnibox and a link for each plugin into a directory",
		Long: `Install cnibox and a link for each of its plugins into a directory, or bring
those that are there to this version. Files are only ever renamed into place, so
runtimes may use the directory meanwhile; an installation that fails is undone.

Files of others, such as the reference plugins, are not overwritten unless you
say --force. They are then kept in DIR/.cnibox-replaced, and uninstall brings
them back.

Some installers write through links (cp -f flannel /opt/cni/bin/flannel), which
would overwrite cnibox itself. So cnibox is made immutable (lsattr shows i) with
symbolic links, and such a cp -f replaces only the link. Where that can't be,
and with hard links, the names that are known to be written so are copies.`,
		Example: `  cnictl install --dir /opt/cni/bin
  cnictl install --dir /opt/cni/bin --only bridge,host-local,portmap,loopback
  cnictl install --dir /opt/cni/bin --from ./bin/cnibox --force`,
		Args: arguments(0, 0),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Dir, "dir", "", "the directory that runtimes look for plugins in")
	flags.StringVar(&o.From, "from", "", "the cnibox to install (default: the one beside cnictl)")
	flags.StringVar(&link, "link", string(install.Links[0]), "how names lead to cnibox: sym, hard or copy")
	flags.StringSliceVar(&only, "only", nil, "install only these plugins, separated by commas (default: all); those of an earlier install stay")
	flags.BoolVar(&o.Force, "force", false, "replace files of others, and keep them for uninstall")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := completeOptions(&o, link, only); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		report, err := install.Install(ctx, o)
		if err != nil {
			return err
		}
		describeInstall(cmd.OutOrStdout(), report)
		return nil
	}
	return cmd
}

func completeOptions(o *install.Options, link string, only []string) error {
	if o.Dir == "" {
		return usagef("--dir is missing: name the directory of plugins, usually --dir /opt/cni/bin")
	}
	o.Link = install.Link(link)
	if !slices.Contains(install.Links, o.Link) {
		return usagef("--link %s: it is one of sym, hard and copy", link)
	}
	o.Names = only
	if only == nil {
		for _, p := range plugins.All {
			o.Names = append(o.Names, p.Name)
		}
	}
	for _, name := range o.Names {
		if plugins.All.Find(name) == nil {
			return usagef("--only %s: cnibox has no such plugin; cnictl list shows them", name)
		}
	}
	if o.From == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the cnibox beside cnictl: %w; name it with --from FILE", err)
		}
		o.From = filepath.Join(filepath.Dir(self), install.Binary)
	}
	return nil
}

func describeInstall(w io.Writer, r *install.Report) {
	if r.Unchanged {
		fmt.Fprintf(w, "%s is up to date\n", r.Dir)
	} else {
		fmt.Fprintf(w, "installed cnibox and %d plugins in %s\n", len(r.Names), r.Dir)
	}
	fmt.Fprintf(w, "  plugins:  %s\n", strings.Join(r.Names, " "))
	if r.Replaced != nil {
		fmt.Fprintf(w, "  replaced: %s; uninstall brings them back\n", strings.Join(r.Replaced, " "))
	}
	if r.Left != nil {
		fmt.Fprintf(w, "  left:     %s, written by another installer since; --force takes it over\n", strings.Join(r.Left, " "))
	}
	if r.Unprotected != nil {
		fmt.Fprintf(w, "  note:     cnibox can't be made immutable there (%v)\n", r.Unprotected)
		fmt.Fprintf(w, "            copies because others write them: %s\n", orNone(r.Copied))
		fmt.Fprintf(w, "            if an installer writes other names with cp -f, use --link copy\n")
	}
}

func orNone(names []string) string {
	if names == nil {
		return "none"
	}
	return strings.Join(names, " ")
}

func newUninstall() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "uninstall --dir DIR",
		Short: "Remove what install made, and bring back what it replaced",
		Long: `Remove from a directory what install made there, and bring back the files it
replaced. What others have put there is left alone.`,
		Example: "  cnictl uninstall --dir /opt/cni/bin",
		Args:    arguments(0, 0),
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the directory of plugins")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if dir == "" {
			return usagef("--dir is missing: name the directory of plugins, usually --dir /opt/cni/bin")
		}
		removal, err := install.Uninstall(dir)
		if removal != nil {
			describeRemoval(cmd.OutOrStdout(), removal)
		}
		return err
	}
	return cmd
}

func describeRemoval(w io.Writer, r *install.Removal) {
	fmt.Fprintf(w, "removed %d files from %s\n", len(r.Removed), r.Dir)
	if r.Restored != nil {
		fmt.Fprintf(w, "  brought back: %s\n", strings.Join(r.Restored, " "))
	}
	if r.Left != nil {
		fmt.Fprintf(w, "  left, since they are not cnibox's any more: %s\n", strings.Join(r.Left, " "))
	}
	if r.Kept != nil {
		fmt.Fprintf(w, "  what install had replaced at these names is still in .cnibox-replaced: %s\n", strings.Join(r.Kept, " "))
	}
}
