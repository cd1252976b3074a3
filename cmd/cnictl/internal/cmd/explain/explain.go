// Package explain says what an error of container networking means, what makes it on this node, and what to do.
package explain

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
)

func New() *cobra.Command {
	var o node.Options
	elsewhere := false
	cmd := &cobra.Command{
		Use:   "explain [TEXT | CODE | FILE | -]",
		Short: "Explain an error of container networking",
		Long: `Say what an error means, what on this node makes it, and what to do: an error
document of a plugin, a line of a runtime's log, a message or a part of one, a
code of the CNI specification, or one of doctor, repair or lint; as an argument,
in a file, or from standard input. It may be a whole line of a log.

The exit code is 1 if nothing is known about it.
`,
		Example: `  cnictl explain 'failed to find plugin "loopback" in path [/usr/lib/cni]'
  cnictl explain 11
  cnictl explain bridge-down
  journalctl -u containerd | grep 'failed to setup network' | tail -1 | cnictl explain`,
	}
	ui.AddNodeFlags(cmd, &o)
	ui.AddJSONFlag(cmd)
	cmd.Flags().BoolVar(&elsewhere, "elsewhere", false, "the error is another node's: do not look at this one")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := errorText(args)
		if err != nil {
			return err
		}
		e := Explain(text)
		if e.Looks() && !elsewhere && !ui.IsRoot() {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: this node is not looked at, which needs root: sudo cnictl explain …")
		} else if e.Looks() && !elsewhere {
			e.LookAt(cmd.Context(), node.Read(cmd.Context(), o), doctor.Options{Options: o})
		}
		if err := ui.Output(cmd, e, func(w io.Writer) { describeExplanation(w, e) }); err != nil {
			return err
		}
		if len(e.Findings) == 0 && e.CodeMeans == "" {
			return ui.Failed
		}
		return nil
	}
	return cmd
}

// Sentences has an argument of explain that begins as a flag does and is none, such as "--dir is missing", taken as a text.
func Sentences(args []string) []string {
	isText := func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return strings.HasPrefix(arg, "-") && strings.Contains(name, " ")
	}
	if len(args) == 0 || args[0] != "explain" || !slices.ContainsFunc(args, isText) || slices.Contains(args, "--") {
		return args
	}
	others := slices.DeleteFunc(slices.Clone(args), isText)
	texts := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !isText(arg) })
	return slices.Concat(others, []string{"--"}, texts)
}

// errorText returns the error to explain.
func errorText(args []string) (string, error) {
	const largest = 1 << 20
	if len(args) == 0 && term.IsTerminal(int(os.Stdin.Fd())) {
		return "", ui.Usagef("give an error, or - to read it from standard input")
	}
	if len(args) == 0 || len(args) == 1 && args[0] == "-" {
		text, err := io.ReadAll(io.LimitReader(os.Stdin, largest+1))
		if len(text) > largest {
			err = ui.Usagef("it is longer than 1 MiB; give a line of it")
		}
		return string(text), err
	}
	if _, err := os.Stat(args[0]); len(args) == 1 && err == nil {
		text, err := state.Read(args[0])
		if err != nil {
			err = plugin.CodeErrorf(types.ErrIOFailure, "give a line of it: tail -1 FILE | cnictl explain", "read %s: %w", args[0], err)
		}
		return string(text), err
	}
	return strings.Join(args, " "), nil
}

// describeExplanation prints what is known, with what is so on this node below it.
func describeExplanation(w io.Writer, e *Explanation) {
	if e.Plugin != "" {
		fmt.Fprintf(w, "plugin %s", ui.Harmless(e.Plugin))
		if e.Network != "" {
			fmt.Fprintf(w, " of network %s", ui.Harmless(e.Network))
		}
		fmt.Fprintf(w, " failed (%s)\n", ui.Harmless(e.Verb))
	}
	if e.CodeMeans != "" {
		fmt.Fprintf(w, "code %d  %s\n", e.Code, e.CodeMeans)
	}
	if e.Details != "" {
		fmt.Fprintf(w, "the plugin says what to do: %s\n", ui.Harmless(e.Details))
	}
	for _, f := range e.Findings {
		fmt.Fprintf(w, "\n%s\n  in the message  %s\n  it means        %s\n", ui.Good.Sprint(f.Code), ui.Harmless(f.Summary), f.Meaning)
		here := f.Here
		for _, d := range f.Doctor {
			here = append(here, "doctor finds "+d.Code+": "+d.Summary)
		}
		for i, line := range here {
			label := "on this node"
			if i > 0 {
				label = ""
			}
			fmt.Fprintf(w, "  %-14s  %s\n", label, ui.Harmless(line))
		}
		if f.Remedy != "" {
			fmt.Fprintf(w, "  what to do      %s\n", f.Remedy)
		}
		for _, d := range f.Doctor {
			if d.Remedy != "" {
				fmt.Fprintf(w, "  %14s  %s\n", "", ui.Harmless(d.Remedy))
			}
		}
	}
	if len(e.Like) > 0 {
		fmt.Fprintf(w, "There is no code %s; there is %s\n", ui.Harmless(e.Message), strings.Join(e.Like, ", "))
	} else if len(e.Findings) == 0 && e.Message != "" {
		fmt.Fprintln(w, "Nothing is known about this message. cnictl doctor looks for what is wrong on this node, and cnictl probe NETWORK tries a network.")
	}
}
