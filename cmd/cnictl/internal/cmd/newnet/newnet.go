// Package newnet makes up the file of a network that works on this node: with a subnet, names and links that collide with nothing.
package newnet

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/runtimes"
)

func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new KIND [NAME] [flags]",
		Short: "Make the file of a network that works on this node",
		Long: `Make the file of a network: with a subnet, a bridge and names that nothing on
this node has. It shows the file and what it chose, and writes it when you agree.
A file that is there is never replaced.

On a terminal and without flags it asks a few questions. Each KIND has its own
flags: cnictl new KIND --help.`,
		Example: `  cnictl new bridge web
  cnictl new bridge --for containerd --ipv6 --yes
  cnictl new macvlan lan --range 192.0.2.200-192.0.2.219 --dry-run`,
	}
	var names []string
	for _, kind := range Kinds {
		names = append(names, kind.Name)
		cmd.AddCommand(newKind(kind))
	}
	cmd.FParseErrWhitelist.UnknownFlags = true // each is a kind's, and the kind is what is wrong
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return ui.Usagef("there is no kind of network %q: it is one of %s", args[0], strings.Join(names, ", "))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !term.IsTerminal(int(os.Stdin.Fd())) {
			return ui.Usagef("say which kind of network to make, one of %s", strings.Join(names, ", "))
		}
		a := newAsker(cmd)
		kind, err := a.kind()
		if err != nil {
			return err
		}
		return makeNetwork(cmd, kind, &newFlags{}, a)
	}
	return cmd
}

func newKind(kind Kind) *cobra.Command {
	f := &newFlags{}
	cmd := &cobra.Command{
		Use:   kind.Name + " [NAME]",
		Short: kind.Short,
		Args:  ui.Arguments(0, 1),
	}
	f.add(cmd, kind)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			if f.Name = args[0]; f.Name == "" {
				return ui.Usagef("the name is empty; leave it out to have one chosen")
			}
		}
		var a *asker
		if len(args) == 0 && cmd.Flags().NFlag() == 0 && term.IsTerminal(int(os.Stdin.Fd())) {
			a = newAsker(cmd)
		}
		return makeNetwork(cmd, kind, f, a)
	}
	return cmd
}

// makeNetwork makes a file, shows it, and writes it. a asks for what is wanted, unless it is nil.
func makeNetwork(cmd *cobra.Command, kind Kind, f *newFlags, a *asker) error {
	if ui.WantsJSON(cmd) && !f.yes && !f.dryRun {
		return ui.Usagef("--json asks nobody: say --yes to write the file, or --dry-run")
	}
	f.Kind = kind.Name
	if err := f.read(); err != nil {
		return newError(err)
	}
	why, err := f.forRuntime()
	if err != nil {
		return err
	}
	host, err := ReadHost(f.directories())
	if err != nil {
		return err
	}
	if a != nil {
		if err := a.options(&f.Options, kind, host); err != nil {
			return newError(err)
		}
	}
	plan, err := Make(f.Options, host)
	if err != nil {
		return newError(err)
	}
	isJSON := ui.WantsJSON(cmd)
	if !isJSON {
		describePlan(cmd.ErrOrStderr(), plan, why)
		err = ui.Write(cmd, plan.Text)
	} else if f.dryRun {
		err = ui.PrintJSON(cmd, documentOf(plan, why, f.dryRun))
	}
	if err != nil || f.dryRun {
		return err
	}
	if !f.yes {
		a = cmp.Or(a, newAsker(cmd))
		if agreed, err := a.yes("Write "+plan.Path+"?", a.terminal); err != nil || !agreed {
			return errors.Join(err, errors.New("nothing was written; to write without a question say --yes"))
		}
	}
	if err := plan.Write(); err != nil {
		return err
	}
	if isJSON {
		return ui.PrintJSON(cmd, documentOf(plan, why, f.dryRun))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s; to try it: %s\n", plan.Path, trial(kind, plan.Name))
	return nil
}

// made is what new prints with --json.
type made struct {
	ui.Files
	Chosen []Choice `json:"chosen"`
}

func documentOf(p *Plan, more []Choice, isDry bool) made {
	file := ui.File{Path: p.Path, Outcome: ui.Written, Content: p.Text}
	return made{ui.Files{DryRun: isDry, Files: []ui.File{file}}, slices.Concat(p.Choice, more)}
}

// trial returns the command that tries a network.
func trial(kind Kind, name string) string {
	if kind.isForOne() { // one container at a time
		return "cnictl run --network " + name + " -- ip address"
	}
	return "cnictl probe " + name
}

// forRuntime takes directory and version from the runtime that the network is for.
func (f *newFlags) forRuntime() (why []Choice, err error) {
	if f.runtime == "" {
		f.CNIVersion, f.TakesOne = "1.0.0", true
		f.ConfDir = cmp.Or(f.ConfDir, os.Getenv("NETCONFPATH"), node.DefaultConfDir)
		return []Choice{{What: "cniVersion", Is: f.CNIVersion, Why: "all runtimes know it; with --for RUNTIME the newest that it knows"}}, nil
	}
	r, err := ui.FindRuntime(f.runtime)
	if err != nil {
		return nil, err
	}
	f.TakesOne = r.TakesOne
	f.ConfDir = cmp.Or(f.ConfDir, r.ConfDir)
	version, reason := r.CNIVersion(runtimes.Options{})
	f.CNIVersion = version
	return []Choice{{What: "directory", Is: r.ConfDir, Why: "that of " + r.Name + ", " + r.Says()}, {What: "cniVersion", Is: version, Why: reason}}, nil
}

// directories returns those of networks: the one to write to, and those of the node's runtimes.
func (f *newFlags) directories() []string {
	dirs := []string{filepath.Clean(f.ConfDir)}
	processes, _ := new(node.Host).Processes()
	others, _ := runtimes.Here(runtimes.Options{Processes: processes}) // doctor says what is wrong with one
	for _, r := range others {
		if !slices.Contains(dirs, r.ConfDir) {
			dirs = append(dirs, r.ConfDir)
		}
	}
	return dirs
}

// describePlan says what was chosen, and why.
func describePlan(w io.Writer, p *Plan, more []Choice) {
	g := ui.NewGrid()
	for _, c := range slices.Concat(p.Choice, more) {
		g.Add(c.What, c.Is, c.Why)
	}
	g.Print(w)
}

// newError is an error about what somebody wants: wrong usage where that can't be.
func newError(err error) error {
	var wrong Wrong
	if errors.As(err, &wrong) {
		return ui.Usagef("%w", err)
	}
	return err
}

func newAsker(cmd *cobra.Command) *asker {
	return &asker{in: bufio.NewReader(cmd.InOrStdin()), out: cmd.ErrOrStderr(), terminal: term.IsTerminal(int(os.Stdin.Fd()))}
}
