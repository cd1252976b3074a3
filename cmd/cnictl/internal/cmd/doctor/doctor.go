// Package doctor answers what is wrong with this node's networks, and how it is mended.
package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/finding"
)

// examination is what doctor prints with --json.
type examination struct {
	*doctor.Report
	Fixed []doctor.Fixed `json:"fixed"` // by --fix; the findings are those of a second look
}

func New() *cobra.Command {
	var n network.Node
	var fix bool
	cmd := &cobra.Command{
		Use:   "doctor [CODE...]",
		Short: "Find out what is wrong with this node's networks, and how to mend it",
		Long: `Look for what keeps containers' networks from working, or will: each finding has
a code, says what is and why it matters, and which command mends it. With codes
only these are looked for. Nothing is changed without --fix, which runs the
commands of those findings that are safe to mend without a person.

The exit code is 1 if there is an error or a warning.
`,
		Example: `  cnictl doctor
  cnictl doctor --fix
  cnictl doctor mtu-above-uplink pool-nearly-full`,
		Args: checkCodes,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return codes(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o := doctor.Options{Options: n.Options(), OwnBinDirs: cmd.Flags().Changed("bin-dir"), Check: true}
			o.Shared = true
			if len(args) > 0 {
				o.Codes = args
			}
			return examine(cmd, o, fix)
		},
	}
	ui.AddNodeFlags(cmd, &n)
	ui.AddJSONFlag(cmd)
	cmd.Flags().BoolVar(&fix, "fix", false, "run the commands that are safe, and look again")
	cmd.Flags().Bool("deep", false, "look inside the containers, too, as doctor always does by now")
	_ = cmd.Flags().MarkHidden("deep")
	return cmd
}

func examine(cmd *cobra.Command, o doctor.Options, fix bool) error {
	e := examination{Report: doctor.Examine(cmd.Context(), o), Fixed: []doctor.Fixed{}}
	if fix {
		e.Fixed = doctor.Fix(cmd.Context(), e.Findings)
		if len(e.Fixed) > 0 {
			e.Report = doctor.Examine(cmd.Context(), o)
		}
	}
	if err := ui.Output(cmd, e, e.describe); err != nil {
		return err
	}
	if !e.Healthy() {
		return ui.Failed
	}
	return nil
}

func codes() []string { return doctor.Codes().Names() }

func checkCodes(_ *cobra.Command, args []string) error {
	for _, code := range args {
		if !slices.Contains(codes(), code) {
			return ui.Usagef("doctor has no finding %q; it has %s", code, strings.Join(codes(), ", "))
		}
	}
	return nil
}

func (e examination) describe(w io.Writer) {
	for _, f := range e.Fixed {
		said := ui.Good.Sprint("fixed")
		if f.Error != "" {
			said = ui.Bad.Sprint("not fixed") + ", " + ui.Harmless(f.Error)
		}
		fmt.Fprintf(w, "%s: %s: %s\n", f.Code, said, ui.Harmless(strings.ReplaceAll(f.Remedy, "\n", "; ")))
	}
	for _, f := range e.Findings {
		if f.Severity != finding.Info && f.IsShown() {
			describeFinding(w, f)
		}
	}
	for _, f := range e.Findings {
		if f.Severity == finding.Info && f.IsShown() {
			fmt.Fprintf(w, "%s: %s\n", f.Code, ui.Harmless(f.Summary))
		}
	}
	for _, n := range e.CouldNotLook {
		fmt.Fprintf(w, "%s at %s: %s\n", ui.Weak.Sprint("could not look"), ui.Harmless(n.What), ui.Harmless(n.Why))
	}
	looked := fmt.Sprintf("%d checks, networks: %d, attachments: %d", e.Checks, e.Networks, e.Attachments)
	if e.Healthy() {
		fmt.Fprintf(w, "%s; %s\n", ui.Good.Sprint("nothing is wrong"), looked)
		return
	}
	fmt.Fprintf(w, "errors: %d, warnings: %d; %s\n", e.Count(finding.Error), e.Count(finding.Warning), looked)
}

// describeFinding prints what is, why it matters, and the commands, each in a line that can be copied.
func describeFinding(w io.Writer, f doctor.Finding) {
	colour := map[finding.Severity]interface{ Sprint(...any) string }{finding.Error: ui.Bad, finding.Warning: ui.Weak}[f.Severity]
	fmt.Fprintf(w, "%s %s: %s\n    %s\n", colour.Sprint(f.Severity), f.Code, ui.Harmless(f.Summary), f.Meaning)
	for line := range strings.Lines(f.Remedy) {
		fmt.Fprintf(w, "        %s\n", ui.Harmless(strings.TrimSuffix(line, "\n")))
	}
	switch f.Brings {
	case 0:
	case 1:
		fmt.Fprintln(w, "    1 more finding comes of it.")
	default:
		fmt.Fprintf(w, "    %d more findings come of it.\n", f.Brings)
	}
	if f.Fixable {
		fmt.Fprintf(w, "    cnictl doctor --fix %s does that.\n", f.Code)
	}
	fmt.Fprintln(w)
}
