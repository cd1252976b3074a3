package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui/uitest"
	"github.com/cnibox/cnibox/pkg/process/box"
)

var commandsFile = flag.String("commands", "", "write into this file what the manual pages are made of")

// command is what a manual page is made of. scripts/release reads it: what makes the pages is not linked here.
type command struct {
	Use, Short, Long, Example, Version string
	Flags, PersistentFlags             []option
	Commands                           []command
}

type option struct{ Name, Shorthand, Usage, Type, Default, NoOptDefault string }

// TestCommands makes sure that what a manual page says does not depend on where it is made.
func TestCommands(t *testing.T) {
	root := newRoot()
	root.InitDefaultCompletionCmd("completion")
	text, err := json.MarshalIndent(describeCommand(root), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), filepath.Dir(self)) {
		t.Errorf("a command's help has a path of the machine that it was made on, %s", filepath.Dir(self))
	}
	if *commandsFile != "" {
		if err := os.WriteFile(*commandsFile, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func describeCommand(cmd *cobra.Command) command {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	c := command{
		Use: cmd.Use, Short: cmd.Short, Long: cmd.Long, Example: cmd.Example, Version: cmd.Version,
		Flags: options(cmd.LocalNonPersistentFlags()), PersistentFlags: options(cmd.PersistentFlags()),
	}
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			c.Commands = append(c.Commands, describeCommand(child))
		}
	}
	return c
}

func options(set *pflag.FlagSet) (list []option) {
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Deprecated == "" {
			list = append(list, option{f.Name, f.Shorthand, f.Usage, f.Value.Type(), f.DefValue, f.NoOptDefVal})
		}
	})
	return list
}

func TestVersion(t *testing.T) {
	out := uitest.RunRoot(newRoot(), "--version")
	uitest.AssertEqual(t, "exit code", out.Code, 0)
	uitest.AssertContains(t, out.Stdout, "cnictl v"+box.Version, box.PluginsVersion)
}
