package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// addJSONFlag gives a command the --json flag.
func addJSONFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("json", false, "print JSON for machines, errors too, on standard output")
}

func wantsJSON(cmd *cobra.Command) bool {
	wanted, err := cmd.Flags().GetBool("json")
	return err == nil && wanted
}

// output prints a document with --json, and otherwise what people read.
func output(cmd *cobra.Command, document any, people func(io.Writer)) error {
	if wantsJSON(cmd) {
		return printJSON(cmd, document)
	}
	var text bytes.Buffer
	people(&text)
	return show(cmd, text.Bytes())
}

// show prints all of a command's output, or fails.
func show(cmd *cobra.Command, text []byte) error {
	if _, err := cmd.OutOrStdout().Write(text); err != nil {
		return fmt.Errorf("print what was done: %w", err)
	}
	return nil
}

func printJSON(cmd *cobra.Command, document any) error {
	text, err := asJSON(document)
	if err != nil {
		return err
	}
	return show(cmd, text)
}

func asJSON(document any) ([]byte, error) {
	text, err := json.MarshalIndent(document, "", "    ")
	return append(text, '\n'), err
}

// findings returns the error of a command that has printed its document, if there is one: with --json it is in there.
func findings(cmd *cobra.Command, errs []error) error {
	err := errors.Join(errs...)
	if err != nil && wantsJSON(cmd) {
		return exitFailed
	}
	return err
}
