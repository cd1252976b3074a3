package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// AddJSONFlag gives a command the --json flag.
func AddJSONFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("json", false, "print JSON for machines, errors too, on standard output")
}

// WantsJSON reports whether a command was called with --json.
func WantsJSON(cmd *cobra.Command) bool {
	wanted, err := cmd.Flags().GetBool("json")
	return err == nil && wanted
}

// Output prints a document with --json, and otherwise what people read.
func Output(cmd *cobra.Command, document any, people func(io.Writer)) error {
	if WantsJSON(cmd) {
		return PrintJSON(cmd, document)
	}
	var text bytes.Buffer
	people(&text)
	return Write(cmd, text.Bytes())
}

// Write prints all of a command's output, or fails.
func Write(cmd *cobra.Command, text []byte) error {
	if _, err := cmd.OutOrStdout().Write(text); err != nil {
		return fmt.Errorf("print what was done: %w", err)
	}
	return nil
}

// PrintJSON prints a document for machines.
func PrintJSON(cmd *cobra.Command, document any) error {
	text, err := AsJSON(document)
	if err != nil {
		return err
	}
	return Write(cmd, text)
}

// AsJSON returns a document as it is printed.
func AsJSON(document any) ([]byte, error) {
	text, err := json.MarshalIndent(document, "", "    ")
	return append(text, '\n'), err
}

// Errors returns the error of a command that has printed its document, if there is one: with --json it is in there.
func Errors(cmd *cobra.Command, errs []error) error {
	err := errors.Join(errs...)
	if err != nil && WantsJSON(cmd) {
		return Failed
	}
	return err
}
