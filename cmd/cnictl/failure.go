package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// The exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// commandError is the exit code of a command that run has run.
type commandError struct{ code int }

func (e commandError) Error() string {
	return fmt.Sprintf("the command ended with exit code %d", e.code)
}

// fail prints an error and returns the exit code for it.
func fail(cmd *cobra.Command, err error) int {
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\nSee %s --help.\n", cmd.CommandPath(), err, cmd.CommandPath())
		return exitUsage
	}
	code := exitFailed
	var failures []error
	for _, e := range flatten(err) {
		if command, ok := e.(commandError); ok {
			code = command.code
			continue
		}
		failures = append(failures, e)
	}
	if wantsJSON(cmd) && failures != nil {
		printJSON(cmd.OutOrStdout(), newErrorDocument(errors.Join(failures...)))
		return code
	}
	for _, e := range failures {
		describeFailure(cmd.ErrOrStderr(), cmd.CommandPath(), e)
	}
	return code
}

// errorDocument is an error as CNI plugins print it (spec 1.1.0, section 5).
type errorDocument struct {
	CNIVersion string `json:"cniVersion"`
	Code       uint   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details,omitempty"`
}

// newErrorDocument makes a document of any error. What wraps a plugin's error
// goes in front of its message.
func newErrorDocument(err error) errorDocument {
	d := errorDocument{CNIVersion: plugin.CurrentVersion, Code: types.ErrInternal, Msg: err.Error()}
	var cni *types.Error
	if !errors.As(err, &cni) {
		return d
	}
	d.Code = cni.Code
	if around, ok := strings.CutSuffix(err.Error(), cni.Error()); ok {
		d.Msg, d.Details = around+cni.Msg, cni.Details
	}
	return d
}

func describeFailure(w io.Writer, command string, err error) {
	d := newErrorDocument(err)
	fmt.Fprintf(w, "%s: %s\n", command, d.Msg)
	if d.Details != "" {
		fmt.Fprintf(w, "  details: %s\n", strings.ReplaceAll(d.Details, "\n", "\n           "))
	}
	var cni *types.Error
	if errors.As(err, &cni) {
		fmt.Fprintf(w, "  code:    %d (%s)\n", d.Code, codeName(d.Code))
	}
}

// codeName says what a CNI error code means.
func codeName(code uint) string {
	switch code {
	case types.ErrIncompatibleCNIVersion:
		return "incompatible CNI version"
	case types.ErrUnsupportedField:
		return "unsupported field"
	case types.ErrUnknownContainer:
		return "unknown container"
	case types.ErrInvalidEnvironmentVariables:
		return "invalid environment variables"
	case types.ErrIOFailure:
		return "I/O failure"
	case types.ErrDecodingFailure:
		return "not decodable"
	case types.ErrInvalidNetworkConfig:
		return "invalid network configuration"
	case types.ErrInvalidNetNS:
		return "invalid network namespace"
	case types.ErrTryAgainLater:
		return "try again later"
	case types.ErrPluginNotAvailable:
		return "plugin not available"
	case types.ErrLimitedConnectivity:
		return "limited connectivity"
	case types.ErrUnknown:
		return "the plugin did not say"
	case types.ErrInternal:
		return "internal error"
	}
	return "the plugin's own"
}

// flatten returns the errors that were joined, however deep.
func flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.Join(joined.Unwrap()...).Error() != err.Error() {
		return []error{err} // one, or several in one sentence
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flatten(e)...)
	}
	return all
}

// addJSONFlag gives a command the --json flag.
func addJSONFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("json", false, "print JSON for machines, errors too, on standard output")
}

func wantsJSON(cmd *cobra.Command) bool {
	wanted, err := cmd.Flags().GetBool("json")
	return err == nil && wanted
}

func printJSON(w io.Writer, document any) {
	text, err := json.MarshalIndent(document, "", "    ")
	if err != nil {
		panic(err) // our own types always marshal
	}
	fmt.Fprintf(w, "%s\n", text)
}
