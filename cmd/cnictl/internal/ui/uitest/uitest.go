// Package uitest runs commands of cnictl in the process of a test.
package uitest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
)

// Outcome is what came of a call of cnictl.
type Outcome struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a command as cnictl does.
func Run(command *cobra.Command, args ...string) Outcome {
	root := &cobra.Command{Use: "cnictl"}
	root.AddCommand(command)
	return RunRoot(root, args...)
}

// RunRoot runs cnictl.
func RunRoot(root *cobra.Command, args ...string) Outcome {
	var stdout, stderr bytes.Buffer
	code := ui.Execute(root, append([]string{}, args...), &stdout, &stderr) // for nil cobra takes the arguments of the test itself
	return Outcome{code, stdout.String(), stderr.String()}
}

// AssertContains makes sure that a text has all parts.
func AssertContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// AssertEqual compares what a test got with what it wants.
func AssertEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
