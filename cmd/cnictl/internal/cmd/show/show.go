// Package show answers what is on this node, and whose it is.
package show

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/cmd/show/page"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/trust"
	"github.com/cnibox/cnibox/pkg/process/box"
)

// showFlags are those of show and of the commands below it.
type showFlags struct {
	node.Options
	network, state, html, sort string
	columns                    []string // that sort may name
	wide, watch                bool
}

// shown is what a command shows: a document for --json, which prints itself for people.
type shown interface {
	print(w io.Writer, f *showFlags)
}

func New() *cobra.Command {
	f := &showFlags{}
	cmd := &cobra.Command{
		Use:   "show [NAME]",
		Short: "Show what is on this node, and whose it is",
		Long: `Show the attachments of this node: addresses, host ends, ports, whether they are
in use. With NAME, show all about what has that name: an address, the id of a
container or its beginning, a pod, a host end, a published port, a namespace or
a MAC address; or a network, a link of the host, a subnet.

Nothing is changed. The command names what can't be read, and shows the rest.
`,
		Example: `  cnictl show
  cnictl show --network demo --state gone
  cnictl show --sort age
  cnictl show 10.88.0.7
  cnictl show :8080
  cnictl show --watch
  cnictl show --html node.html`,
		Args:              ui.Arguments(0, 1),
		ValidArgsFunction: ui.CompleteNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && (f.network != "" || f.state != "" || f.html != "" || f.sort != ""):
				return ui.Usagef("NAME does not go with --network, --state, --sort and --html")
			case len(args) == 1 && args[0] == "":
				return ui.Usagef("NAME is empty")
			case len(args) == 1:
				return f.run(cmd, func(n *node.Node) (shown, error) {
					if !f.watch {
						sayLong(cmd, n, args[0])
					}
					found, err := lookup.Find(n, args[0])
					return shownName{found}, err
				})
			case f.html != "" && (f.watch || f.sort != "" || ui.WantsJSON(cmd)):
				return ui.Usagef("--html does not go with --watch, --sort and --json")
			case f.html != "":
				return f.writePage(cmd)
			}
			return f.run(cmd, f.attachments)
		},
	}
	f.add(cmd)
	f.addState(cmd)
	addSort(cmd, f, attachmentColumns)
	cmd.Flags().BoolVar(&f.wide, "wide", false, "show more: whole ids, lengths of prefixes, why a state is as it is")
	cmd.Flags().StringVar(&f.html, "html", "", "write a page with the node drawn to a file, to look at in a browser")
	cmd.AddCommand(newShowNetworks(), newShowPorts())
	return cmd
}

// sayLong says to a person that it may take a while to find a name that no attachment has: all namespaces may have to be looked into.
func sayLong(cmd *cobra.Command, n *node.Node, name string) {
	const few = 100
	f, isFile := cmd.ErrOrStderr().(*os.File)
	if len(n.Namespaces) > few && n.Find(name) == nil && isFile && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(f, "looking for %s, if need be inside of %d network namespaces\n", ui.Harmless(name), len(n.Namespaces))
	}
}

// add gives a command the flags that all have.
func (f *showFlags) add(cmd *cobra.Command) {
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &f.Options)
	ui.AddJSONFlag(cmd)
	flags := cmd.Flags()
	ui.AddNetworkFlag(cmd, &f.network, "only of this network")
	flags.BoolVar(&f.watch, "watch", false, "look again each second, until Ctrl-C; where nobody looks, print what has changed")
}

func (f *showFlags) addState(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.state, "state", "", "in this state only: alive, gone, replaced or unknown")
	ui.Complete(cmd, "state", cobra.FixedCompletions(stateNames(), cobra.ShellCompDirectiveNoFileComp))
}

// run looks at the node, once or for as long as it is watched.
func (f *showFlags) run(cmd *cobra.Command, look func(*node.Node) (shown, error)) error {
	if err := f.check(); err != nil {
		return err
	}
	known := func(n *node.Node) (shown, error) {
		if err := lookup.RequireNetwork(n, f.ConfDir, f.network); err != nil {
			return nil, err
		}
		return look(n)
	}
	if f.watch {
		return f.watchNode(cmd, known)
	}
	n := node.Read(cmd.Context(), f.Options)
	what, err := known(n)
	if err != nil {
		return err
	}
	err = ui.Output(cmd, what, func(w io.Writer) { what.print(w, f) })
	f.noteUnread(cmd.ErrOrStderr(), n)
	return err
}

func stateNames() (names []string) {
	for _, s := range node.States {
		names = append(names, string(s))
	}
	return names
}

// check refuses a state and a column that are none.
func (f *showFlags) check() error {
	if f.state != "" && !slices.Contains(node.States, node.State(f.state)) {
		return ui.Usagef("--state %q is not alive, gone, replaced or unknown", f.state)
	}
	if f.sort != "" && !slices.Contains(f.columns, f.sort) {
		return ui.Usagef("--sort %q is no column: it is one of %s", f.sort, strings.Join(f.columns, ", "))
	}
	return nil
}

// writePage draws the node.
func (f *showFlags) writePage(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this node"
	}
	n := node.Read(cmd.Context(), f.Options)
	if err := lookup.RequireNetwork(n, f.ConfDir, f.network); err != nil {
		return err
	}
	p := page.New(n, f.chosen(n), host, box.Version, time.Now())
	found := doctor.Examine(cmd.Context(), doctor.Options{Options: f.Options, Node: n}).Findings
	p.Findings = slices.DeleteFunc(found, func(f doctor.Finding) bool { return f.Severity == finding.Info || !f.IsShown() })
	var text bytes.Buffer
	if err := p.Write(&text); err != nil {
		return err
	}
	if f.html == "-" {
		return ui.Write(cmd, text.Bytes())
	}
	return trust.Write(f.html, text.Bytes(), 0o644)
}

// noteUnread says what could not be read.
func (f *showFlags) noteUnread(w io.Writer, n *node.Node) {
	const most = 10
	list := f.unread(n)
	for i, u := range list {
		if i == most {
			fmt.Fprintf(w, "note: and %d more, which --json lists\n", len(list)-most)
			break
		}
		fmt.Fprintf(w, "note: could not read %s: %s\n", ui.Harmless(u.What), ui.Harmless(u.Why))
	}
}

// unread returns what could not be read, as far as it may be about the network that is shown.
func (f *showFlags) unread(n *node.Node) []node.Unread {
	list := []node.Unread{}
	for _, u := range n.Unread {
		if f.network == "" || u.Network == "" || u.Network == f.network {
			list = append(list, u)
		}
	}
	return list
}

// shownAttachments is what `show` prints.
type shownAttachments struct {
	Attachments []*node.Attachment `json:"attachments"`
	Unowned     []node.Holding     `json:"unowned"`
	Unread      []node.Unread      `json:"unread"`
}

func (f *showFlags) attachments(n *node.Node) (shown, error) {
	list := f.chosen(n)
	if f.sort != "" {
		list = inOrder(list)
		sortRows(list, attachmentColumns, f.sort)
	}
	s := &shownAttachments{Attachments: list, Unowned: []node.Holding{}, Unread: f.unread(n)}
	for _, t := range n.Unowned {
		if f.network == "" || t.Network == f.network {
			s.Unowned = append(s.Unowned, t)
		}
	}
	return s, nil
}

// chosen returns the attachments that the flags choose.
func (f *showFlags) chosen(n *node.Node) []*node.Attachment {
	list := []*node.Attachment{}
	for _, a := range n.Attachments {
		if (f.network == "" || a.Network == f.network) && (f.state == "" || a.State == node.State(f.state)) {
			list = append(list, a)
		}
	}
	return list
}

func (s *shownAttachments) print(w io.Writer, f *showFlags) {
	printAttachments(w, s.Attachments, f)
	if len(s.Attachments) > 0 {
		fmt.Fprintln(w)
	}
	count := map[node.State]int{}
	for _, a := range s.Attachments {
		count[a.State]++
	}
	fmt.Fprint(w, ui.Counted(len(s.Attachments), "attachment"))
	for _, state := range node.States {
		if count[state] > 0 {
			fmt.Fprintf(w, ", %d %s", count[state], colourOf(state).Sprint(state))
		}
	}
	fmt.Fprintln(w)
	if len(s.Unowned) > 0 {
		fmt.Fprintf(w, "%s held for nobody who is known\n", ui.Counted(len(s.Unowned), "thing"))
	}
	if count[node.Gone]+count[node.Replaced]+len(s.Unowned) > 0 {
		fmt.Fprintln(w, "`cnictl gc` says what can be freed")
	}
}
