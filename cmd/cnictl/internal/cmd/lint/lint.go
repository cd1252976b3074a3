// Package lint answers what is wrong in network configurations, before a runtime uses them.
package lint

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/lint"
	"github.com/cnibox/cnibox/pkg/operator/trust"
	"github.com/cnibox/cnibox/pkg/process/box"
	"github.com/cnibox/cnibox/plugins/known"
)

// linted is what lint prints with --json.
type linted struct {
	Files    int            `json:"files"`
	Fixed    []lint.Finding `json:"fixed"` // by --fix; the findings are those of a second look
	Findings []lint.Finding `json:"findings"`
}

// lintFlags are the flags of lint.
type lintFlags struct {
	network.Node
	fix, node, sarif bool
	reference        string
}

func New() *cobra.Command {
	var flags lintFlags
	cmd := &cobra.Command{
		Use:   "lint FILE|DIR|-...",
		Short: "Find mistakes in network configurations, before a runtime uses them",
		Long: `Look for mistakes in network configurations: keys that no plugin has, values that
it refuses, plugins in an order that can't work, addresses that overlap. Each
finding has a place, a code, and says what to write there. It works on files
alone, of cnibox's plugins and of the reference's, and on Kubernetes'
NetworkAttachmentDefinitions in YAML or JSON; the files of a directory are
compared with each other. "-" is standard input.

The exit code is 1 if there is an error or a warning.
`,
		Example: `  cnictl lint /etc/cni/net.d
  cnictl lint --fix 10-mynet.conflist
  cnictl lint --node /etc/cni/net.d
  cnictl lint --sarif networks/ > lint.sarif`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return ui.Usagef("name a file, a directory, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runLint(cmd, args, &flags) },
	}
	ui.AddNodeFlags(cmd, &flags.Node.Options)
	_ = cmd.Flags().MarkHidden("cache-dir")
	ui.AddJSONFlag(cmd)
	cmd.Flags().BoolVar(&flags.fix, "fix", false, "mend what can be mended in one way only, and look again")
	cmd.Flags().BoolVar(&flags.node, "node", false, "compare with this node too: its plugins, links, routes and networks")
	cmd.Flags().BoolVar(&flags.sarif, "sarif", false, "print SARIF, which code hosts and editors show")
	cmd.Flags().StringVar(&flags.reference, "reference", "", "version of the reference plugins that the files are to work with too, such as 1.4.0")
	return cmd
}

func runLint(cmd *cobra.Command, args []string, flags *lintFlags) error {
	if flags.sarif && ui.WantsJSON(cmd) {
		return ui.Usagef("print one of --json and --sarif")
	}
	inputs, err := readInputs(cmd.InOrStdin(), args)
	if err != nil {
		return err
	}
	o := lint.Options{Plugins: known.Plugins, Reference: flags.reference}
	if flags.node {
		if o.Node, err = lint.ReadNode(flags.BinDirs, flags.ConfDir); err != nil {
			return err
		}
	}
	out := linted{Files: len(inputs), Fixed: []lint.Finding{}}
	if flags.fix {
		if out.Fixed, err = fixFiles(inputs, o); err != nil {
			return err
		}
	}
	out.Findings = lint.Files(inputs, o)
	if flags.sarif {
		err = printSARIF(cmd, out.Findings)
	} else {
		err = ui.Output(cmd, out, out.describe)
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(out.Findings, func(f lint.Finding) bool { return f.Severity != finding.Info }) {
		return ui.Failed
	}
	return nil
}

// readInputs reads the files, and those of the directories.
func readInputs(stdin io.Reader, args []string) (inputs []lint.Input, err error) {
	for _, arg := range args {
		more := []lint.Input{{Name: arg}}
		if arg == "-" {
			more[0].Text, err = io.ReadAll(stdin)
		} else {
			more, err = lint.Read(arg)
		}
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, more...)
	}
	return inputs, nil
}

// fixFiles mends files, and puts the new text in place of the old. Text that was read from standard input can't be written back.
func fixFiles(inputs []lint.Input, o lint.Options) (all []lint.Finding, err error) {
	all = []lint.Finding{}
	for i := range inputs {
		in := &inputs[i]
		if in.Name == "-" {
			return all, ui.Usagef("--fix writes files: name one in place of -")
		}
		text, done := lint.Fix(in.Name, in.Text, o)
		if done == nil {
			continue
		}
		if err := trust.Rewrite(in.Name, text); err != nil {
			return all, err
		}
		in.Text = text
		all = append(all, done...)
	}
	return all, nil
}

func printSARIF(cmd *cobra.Command, list []lint.Finding) error {
	report, err := lint.SARIF(list, box.Version)
	if err != nil {
		return err
	}
	return ui.PrintJSON(cmd, report)
}

func (l linted) describe(w io.Writer) {
	count := map[finding.Severity]int{}
	for _, f := range l.Findings {
		count[f.Severity]++
	}
	if count[finding.Error]+count[finding.Warning] == 0 {
		fmt.Fprintf(w, "%s; files: %d\n", ui.Good.Sprint("nothing is wrong"), l.Files)
	} else {
		fmt.Fprintf(w, "errors: %d, warnings: %d; files: %d\n", count[finding.Error], count[finding.Warning], l.Files)
	}
	for _, f := range l.Fixed {
		fmt.Fprintf(w, "%s:%d:%d: %s %s: %s\n    now: %s\n", ui.Harmless(f.File), f.Line, f.Column, ui.Good.Sprint("fixed"), f.Code, ui.Harmless(f.Summary), ui.Harmless(f.Remedy))
	}
	worstFirst := func(a, b lint.Finding) int { return a.Severity.Rank() - b.Severity.Rank() }
	for _, f := range slices.SortedStableFunc(slices.Values(l.Findings), worstFirst) {
		severity := string(f.Severity)
		switch f.Severity {
		case finding.Error:
			severity = ui.Bad.Sprint(severity)
		case finding.Warning:
			severity = ui.Weak.Sprint(severity)
		}
		fmt.Fprintf(w, "%s:%d:%d: %s %s: %s\n", ui.Harmless(f.File), f.Line, f.Column, severity, f.Code, ui.Harmless(f.Summary))
		if f.Remedy != "" {
			by := ""
			if f.Fixable {
				by = " (--fix writes it)"
			}
			fmt.Fprintf(w, "    write: %s%s\n", ui.Harmless(f.Remedy), by)
		}
	}
}
