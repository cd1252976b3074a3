package main

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// command is a command of cnictl, as its test TestCommands writes it.
type command struct {
	Use, Short, Long, Example, Version string
	Flags, PersistentFlags             []option
	Commands                           []command
}

type option struct{ Name, Shorthand, Usage, Type, Default, NoOptDefault string }

// manual writes a manual page for each command of cnictl into the tree.
func manual(r Release) error {
	text, err := os.ReadFile(r.Commands)
	if err != nil {
		return err
	}
	var root command
	if err := json.Unmarshal(text, &root); err != nil {
		return err
	}
	header := &doc.GenManHeader{Section: "1", Source: "cnibox " + r.Version, Manual: "cnibox", Date: &r.Time}
	return doc.GenManTree(root.cobra(), header, filepath.Join(r.Tree, "share/man/man1"))
}

func (c command) cobra() *cobra.Command {
	cmd := &cobra.Command{
		Use: c.Use, Short: c.Short, Long: c.Long, Example: c.Example, Version: c.Version,
		Run:               func(*cobra.Command, []string) {}, // without it, cobra takes it for a mere topic of help
		DisableAutoGenTag: true,                              // the day
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	addOptions(cmd.Flags(), c.Flags)
	addOptions(cmd.PersistentFlags(), c.PersistentFlags)
	for _, child := range c.Commands {
		cmd.AddCommand(child.cobra())
	}
	return cmd
}

func addOptions(set *pflag.FlagSet, options []option) {
	for _, o := range options {
		set.AddFlag(&pflag.Flag{Name: o.Name, Shorthand: o.Shorthand, Usage: o.Usage, DefValue: o.Default, NoOptDefVal: o.NoOptDefault, Value: value{o}})
	}
}

// value is an option that is only described.
type value struct{ option }

func (v value) String() string   { return v.Default }
func (v value) Set(string) error { return nil }
func (v value) Type() string     { return v.option.Type }
