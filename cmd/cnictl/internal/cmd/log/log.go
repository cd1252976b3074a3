// Package log answers which plugins were called, for whom, and what came of it: it finds calls in the log, waits for more, and turns the log on and off.
package log

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/lookup"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// logged is what log --json prints.
type logged struct {
	Calls      []calllog.Call  `json:"calls"`
	Holders    []addressHolder `json:"holders,omitempty"` // of the address that was asked for
	Torn       int             `json:"torn"`              // lines of the log that are no calls
	Unreadable []string        `json:"unreadable,omitempty"`
}

func New() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "log [NAME]",
		Short: "Show which plugins were called, for whom, and what came of it",
		Long: `Show the calls of plugins that are in the log, which "cnictl log on" turns on.
NAME is a container id or its beginning, a pod, an interface's name, a MAC or an
IP address. Of an IP address it shows which containers had it, and when.
`,
		Example: `  cnictl log on
  cnictl log 10.88.0.7
  cnictl log web-1 --since 2h
  cnictl log --errors -f`,
		Args:              ui.Arguments(0, 1),
		ValidArgsFunction: completeLogged,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	ui.AddNodeFlags(cmd, &f.Options)
	ui.AddJSONFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "log-dir", calllog.Dir, "directory of the log, such as a copy of another node's")
	flags.StringVar(&f.since, "since", "", `only calls since then: 2h (ago), "2006-01-02 15:04" or RFC 3339`)
	flags.StringVar(&f.until, "until", "", "only calls until then")
	flags.StringVar(&f.Verb, "verb", "", "only these: ADD, DEL, CHECK, GC or STATUS")
	ui.AddNetworkFlag(cmd, &f.Network, "only of this network")
	flags.BoolVar(&f.Errors, "errors", false, "only calls that failed")
	flags.IntVarP(&f.lines, "lines", "n", 0, "only the last so many; 0 is all, or 10 with --follow")
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with calls as they come")
	flags.BoolVar(&f.wide, "wide", false, "show all of ids and errors, and more columns")
	ui.Complete(cmd, "verb", cobra.FixedCompletions(verbs, cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(newLogOn(calllog.Dir), newLogOff(calllog.Dir), newLogStatus(calllog.Dir))
	return cmd
}

// verbs are those of calls in the log.
var verbs = []cobra.Completion{"ADD", "DEL", "CHECK", "GC", "STATUS"}

// logFlags are the flags of log.
type logFlags struct {
	node.Options
	Filter
	dir, since, until string
	lines             int
	follow, wide      bool
}

func (f *logFlags) run(cmd *cobra.Command, args []string) (err error) {
	if len(args) > 0 {
		f.Name = args[0]
	}
	for _, t := range []struct {
		text string
		to   *time.Time
	}{{f.since, &f.Since}, {f.until, &f.Until}} {
		if t.text == "" {
			continue
		}
		if *t.to, err = ParseTime(t.text, time.Now()); err != nil {
			return ui.Usagef("%w", err)
		}
	}
	if f.Verb != "" && !slices.Contains(verbs, strings.ToUpper(f.Verb)) {
		return ui.Usagef("--verb %s: it is one of %s", f.Verb, strings.Join(verbs, ", "))
	}
	if f.lines < 0 {
		return ui.Usagef("-n %d is no number of calls", f.lines)
	}
	if err := f.sayIfOff(cmd); err != nil {
		return err
	}
	if f.follow {
		return f.tail(cmd)
	}
	return f.list(cmd)
}

// sayIfOff says that the log is off, which is an error where there is nothing of it.
func (f *logFlags) sayIfOff(cmd *cobra.Command) error {
	s, err := calllog.Look(f.dir)
	switch {
	case err != nil, s.On: // what can be read is shown, and why the rest can't
		return nil
	case s.Size == 0:
		return plugin.CodeErrorf(types.ErrPluginNotAvailable, `turn it on with "cnictl log on": it has the calls from then on`, "there is no log of calls in %s", f.dir)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), `the log is off: this is what it had; "cnictl log on" goes on with it`)
	return nil
}

// list prints what is in the log.
func (f *logFlags) list(cmd *cobra.Command) error {
	all, torn, err := calllog.Read(f.dir)
	document := logged{Calls: []calllog.Call{}, Torn: torn}
	if err != nil {
		for _, e := range ui.Flatten(err) {
			document.Unreadable = append(document.Unreadable, e.Error())
		}
	}
	if err == nil {
		if err := f.requireKnown(all); err != nil {
			return err
		}
	}
	var begins time.Time
	if len(all) > 0 {
		begins = all[0].Time
	}
	address, isAddress := f.Address()
	if isAddress {
		document.Holders = addressHolders(f.Holders(all))
	}
	document.Calls = f.last(append(document.Calls, f.Apply(all)...))
	failed := ui.Output(cmd, document, func(w io.Writer) {
		if isAddress && !f.Errors && f.Verb == "" {
			printHolders(w, address, document.Holders, begins)
			return
		}
		printCalls(w, document.Calls, f.wide)
	})
	if torn > 0 && !ui.WantsJSON(cmd) {
		fmt.Fprintf(cmd.ErrOrStderr(), "left out what is torn, as by a full disk: %s\n", ui.Counted(torn, "line"))
	}
	if ui.WantsJSON(cmd) && err != nil {
		err = ui.Failed // the document says why
	}
	return cmp.Or(failed, err)
}

// requireKnown refuses a network that neither the log nor the node has, and a name that no call has. Nobody having had an address is an answer.
func (f *logFlags) requireKnown(all []calllog.Call) error {
	if f.Network != "" && !slices.ContainsFunc(all, func(c calllog.Call) bool { return c.Network == f.Network }) {
		networks, broken, err := node.Load(f.ConfDir)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(networks, func(w *node.Network) bool { return w.Name == f.Network }) {
			return lookup.UnknownNetwork(f.Network, f.ConfDir, networks, broken)
		}
	}
	if _, isAddress := f.Address(); isAddress || slices.ContainsFunc(all, func(c calllog.Call) bool { return f.isNamed(&c) }) || f.Name == "" {
		return nil
	}
	var names []string
	for _, c := range all {
		names = append(names, c.ContainerID[:min(12, len(c.ContainerID))], c.Pod)
	}
	return lookup.NotOne(types.ErrUnknownContainer, f.Name, names, "`cnictl log` lists all calls, and `cnictl log status` says how far back they go", "no call in the log is of %q", f.Name)
}

// last returns as many of the last calls as are wanted.
func (f *logFlags) last(list []calllog.Call) []calllog.Call {
	if f.lines > 0 {
		return list[max(0, len(list)-f.lines):]
	}
	return list
}

// tail prints the last calls, and those that come, until it is ended.
func (f *logFlags) tail(cmd *cobra.Command) error {
	follower, err := Follow(f.dir)
	if err != nil {
		return err
	}
	defer follower.Close()
	f.lines = cmp.Or(f.lines, 10)
	list, err := follower.Next()
	for list = f.last(f.Apply(list)); err == nil; list = f.Apply(list) {
		if err := f.showNew(cmd, list); err != nil {
			return err
		}
		list, err = follower.Next()
	}
	return err
}

func (f *logFlags) showNew(cmd *cobra.Command, list []calllog.Call) error {
	var text []byte
	for _, c := range list {
		line := []byte(streamed(&c, f.wide))
		if ui.WantsJSON(cmd) {
			line, _ = c.MarshalJSON()
		}
		text = append(append(text, line...), '\n')
	}
	return ui.Write(cmd, text)
}

// completeLogged completes a container or an address that the log has, of those that are gone, too.
func completeLogged(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var list []cobra.Completion
	dir, _ := cmd.Flags().GetString("log-dir")
	all, _, _ := calllog.Read(dir)
	for _, c := range all {
		list = append(list, cobra.CompletionWithDesc(c.ContainerID, c.Network), cobra.CompletionWithDesc(c.Pod, c.Network))
		for _, address := range c.Addresses {
			address, _, _ = strings.Cut(address, "/")
			list = append(list, cobra.CompletionWithDesc(address, cmp.Or(c.Pod, c.ContainerID)))
		}
	}
	if len(args) > 0 {
		list = nil
	}
	return ui.Matching(list, begin)
}
