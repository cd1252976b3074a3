package ui

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// ExitCode is the error of a command that has said all that there is to say: only the exit code is left.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("the command ended with exit code %d", int(c)) }

// The exit codes of cnictl itself.
const (
	Failed     ExitCode = 1
	WrongUsage ExitCode = 2
)

// usageError is the caller's mistake on the command line.
type usageError struct{ error }

// Usagef is the error of a wrong usage.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// fail prints an error and returns the exit code for it.
func fail(cmd *cobra.Command, err error) ExitCode {
	w := cmd.ErrOrStderr()
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(w, "%s: %v\nSee %s --help.\n", cmd.CommandPath(), err, cmd.CommandPath())
		return WrongUsage
	}
	code := Failed
	var failures []error
	for _, e := range Flatten(err) {
		if command, ok := e.(ExitCode); ok {
			code = command
			continue
		}
		failures = append(failures, e)
	}
	if WantsJSON(cmd) && failures != nil {
		_ = PrintJSON(cmd, NewErrorDocument(errors.Join(failures...)))
		return code
	}
	for _, e := range failures {
		d := NewErrorDocument(e)
		fmt.Fprintf(w, "%s: %s\n", cmd.CommandPath(), d.Msg)
		if d.Details != "" {
			fmt.Fprintf(w, "  details: %s\n", strings.ReplaceAll(d.Details, "\n", "\n           "))
		}
		var cni *types.Error
		if errors.As(e, &cni) {
			fmt.Fprintf(w, "  code:    %d (%s)\n", d.Code, CodeName(d.Code))
		}
	}
	return code
}

// ErrorDocument is an error as CNI plugins print it (spec 1.1.0, section 5).
type ErrorDocument struct {
	CNIVersion string `json:"cniVersion"`
	types.Error
}

// NewErrorDocument makes a document of any error. Text that wraps a plugin's error goes in front of its message.
// A refusal by the system is an I/O failure.
func NewErrorDocument(err error) ErrorDocument {
	d := ErrorDocument{plugin.CurrentVersion, *plugin.AsError(err)}
	var refused syscall.Errno
	if d.Code == types.ErrInternal && (errors.As(err, &refused) || errors.Is(err, exec.ErrNotFound)) {
		d.Code = types.ErrIOFailure
	}
	if d.Details == "" && errors.Is(err, fs.ErrPermission) && !IsRoot() {
		d.Details = "repeat it as root, with sudo"
	}
	return d
}

// CodeName says what a CNI error code means.
func CodeName(code uint) string {
	names := map[uint]string{
		types.ErrUnknown:                     "the plugin did not say",
		types.ErrIncompatibleCNIVersion:      "incompatible CNI version",
		types.ErrUnsupportedField:            "unsupported field",
		types.ErrUnknownContainer:            "unknown container",
		types.ErrInvalidEnvironmentVariables: "invalid environment variables",
		types.ErrIOFailure:                   "I/O failure",
		types.ErrDecodingFailure:             "not decodable",
		types.ErrInvalidNetworkConfig:        "invalid network configuration",
		types.ErrInvalidNetNS:                "invalid network namespace",
		types.ErrTryAgainLater:               "try again later",
		types.ErrPluginNotAvailable:          "plugin not available",
		types.ErrLimitedConnectivity:         "limited connectivity",
		types.ErrInternal:                    "internal error",
	}
	if name, ok := names[code]; ok {
		return name
	}
	return "the plugin's own"
}

// Flatten returns the errors that were joined, however deep.
func Flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.Join(joined.Unwrap()...).Error() != err.Error() {
		return []error{err} // one, or several in one sentence
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, Flatten(e)...)
	}
	return all
}
