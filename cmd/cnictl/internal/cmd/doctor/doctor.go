// Package doctor answers what is wrong with this node's networks, and how it is mended.
package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// examination is what doctor prints with --json.
type examination struct {
	*doctor.Report
	Fixed []doctor.Fixed `json:"fixed"` // by --fix; the findings are those of a second look
}

func New() *cobra.Command {
	var n network.Node
	var fix bool
	var network string
	cmd := &cobra.Command{
		Use:   "doctor [CODE...]",
		Short: "Find out what is wrong with this node's networks, and how to mend it",
		Long: `Look for what keeps containers' networks from working, or will: each finding has
a code, says what is and why it matters, and which command mends it. With codes
only these are looked for. Nothing is changed without --fix, which runs the
commands of those findings that are safe to mend without a person.

The exit code is 0 if nothing is wrong, also where it could not look at
something, 1 if there is an error or a warning, 2 for a wrong usage.
`,
		Example: `  cnictl doctor
  cnictl doctor --fix
  cnictl doctor mtu-above-uplink pool-nearly-full`,
		Args: checkCodes,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return codes(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o := doctor.Options{Options: n.Options, OwnBinDirs: cmd.Flags().Changed("bin-dir"), Thorough: true}
			o.Shared = true
			if len(args) > 0 {
				o.Codes = args
			}
			return examine(cmd, o, fix, network)
		},
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &n.Options)
	ui.AddJSONFlag(cmd)
	ui.AddNetworkFlag(cmd, &network, "only what is of this network, and of the node as a whole")
	cmd.Flags().BoolVar(&fix, "fix", false, "run the commands that are safe, and look again")
	return cmd
}

func examine(cmd *cobra.Command, o doctor.Options, fix bool, network string) error {
	o.Node = node.Read(cmd.Context(), o.Options)
	if err := lookup.RequireNetwork(o.Node, o.ConfDir, network); err != nil {
		return err
	}
	e := examination{Report: limit(doctor.Examine(cmd.Context(), o), o.Node, network), Fixed: []doctor.Fixed{}}
	if fix {
		e.Fixed = doctor.Fix(cmd.Context(), e.Findings)
		if len(e.Fixed) > 0 {
			o.Node = node.Read(cmd.Context(), o.Options)
			e.Report = limit(doctor.Examine(cmd.Context(), o), o.Node, network)
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

// limit leaves of a report what is about a network, and what is about the node. "" is all.
func limit(r *doctor.Report, n *node.Node, network string) *doctor.Report {
	if network == "" {
		return r
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f doctor.Finding) bool { return f.Network != "" && f.Network != network })
	r.Networks, r.Attachments = 0, 0
	if w := n.Network(network); w != nil {
		r.Networks, r.Attachments = 1, w.Attachments
	}
	return r
}

func checkCodes(_ *cobra.Command, args []string) error {
	for _, code := range args {
		if !slices.Contains(codes(), code) {
			return ui.Usagef("doctor has no finding %q; it has %s", code, strings.Join(codes(), ", "))
		}
	}
	return nil
}

func (e examination) describe(w io.Writer) {
	looked := fmt.Sprintf("%d checks, networks: %d, attachments: %d", e.Checks, e.Networks, e.Attachments)
	if len(e.CouldNotLook) > 0 {
		looked += fmt.Sprintf("; could not look at %s", ui.Counted(len(e.CouldNotLook), "thing"))
	}
	if e.Healthy() {
		fmt.Fprintf(w, "%s; %s\n", ui.Good.Sprint("nothing is wrong"), looked)
	} else {
		fmt.Fprintf(w, "errors: %d, warnings: %d; %s\n\n", e.Count(finding.Error), e.Count(finding.Warning), looked)
	}
	for _, f := range e.Fixed {
		said := ui.Good.Sprint("fixed")
		if f.Error != "" {
			said = ui.Bad.Sprint("not fixed") + ", " + ui.Harmless(f.Error)
		}
		fmt.Fprintf(w, "%s: %s: %s\n", f.Code, said, ui.Harmless(strings.ReplaceAll(f.Remedy, "\n", "; ")))
	}
	for _, alike := range grouped(e.Findings) {
		if alike[0].Severity != finding.Info {
			describeFindings(w, alike)
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
}

// grouped returns the findings to show, those of each code together, in the order in which the codes come first.
func grouped(list []doctor.Finding) (groups [][]doctor.Finding) {
	for _, f := range list {
		if !f.IsShown() {
			continue
		}
		i := slices.IndexFunc(groups, func(g []doctor.Finding) bool { return g[0].Code == f.Code && g[0].Meaning == f.Meaning })
		if i < 0 {
			groups, i = append(groups, nil), len(groups)
		}
		groups[i] = append(groups[i], f)
	}
	return groups
}

// describeFindings prints what is, why it matters, and the commands, each in a line that can be copied, and each once.
func describeFindings(w io.Writer, alike []doctor.Finding) {
	said := map[string]bool{}
	printOnce := func(line string) {
		if !said[line] {
			said[line] = true
			fmt.Fprintln(w, line)
		}
	}
	colour := map[finding.Severity]interface{ Sprint(...any) string }{finding.Error: ui.Bad, finding.Warning: ui.Weak}[alike[0].Severity]
	for _, f := range alike {
		printOnce(fmt.Sprintf("%s %s: %s", colour.Sprint(f.Severity), f.Code, ui.Harmless(f.Summary)))
	}
	fmt.Fprintf(w, "    %s\n", alike[0].Meaning)
	for _, f := range alike {
		if f.Remedy == "" {
			continue
		}
		var commands []string
		for line := range strings.Lines(f.Remedy) {
			commands = append(commands, "        "+ui.Harmless(strings.TrimSuffix(line, "\n")))
		}
		printOnce(strings.Join(commands, "\n"))
	}
	brings := 0
	for _, f := range alike {
		brings += f.Brings
	}
	switch brings {
	case 0:
	case 1:
		fmt.Fprintln(w, "    1 more finding comes of it.")
	default:
		fmt.Fprintf(w, "    %d more findings come of it.\n", brings)
	}
	if slices.ContainsFunc(alike, func(f doctor.Finding) bool { return f.Fixable }) {
		fmt.Fprintf(w, "    cnictl doctor --fix %s does that.\n", alike[0].Code)
	}
	fmt.Fprintln(w)
}
