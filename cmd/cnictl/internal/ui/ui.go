// Package ui is what all commands of cnictl share towards the person who types them: flags and their completion, output for people and
// machines, failures and exit codes, progress, words.
package ui

import (
	"io"

	"github.com/spf13/cobra"
)

// Execute runs the command that arguments name, prints its error, and returns the exit code.
func Execute(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	setColours(stdout)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	return int(fail(cmd, err))
}
