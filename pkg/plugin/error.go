package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
)

// Code is a CNI error code (spec 1.1.0, section "Error", and libcni).
type Code uint

// The codes that have a meaning of their own. Everything else is CodeInternal.
const (
	CodeIncompatibleVersion Code = 1
	CodeUnsupportedField    Code = 2
	CodeUnknownContainer    Code = 3
	CodeInvalidEnvironment  Code = 4
	CodeIOFailure           Code = 5
	CodeDecodingFailure     Code = 6
	CodeInvalidConfig       Code = 7
	CodeInvalidNetns        Code = 8 // libcni's; not in the spec's table
	CodeTryAgainLater       Code = 11
	CodeNotAvailable        Code = 50 // STATUS: no ADD can be served
	CodeInternal            Code = 999
)

// Error is what a runtime is told: what failed, and what to do about it.
type Error struct {
	Code    Code
	Msg     string // what failed, on what, with which value
	Details string // the remedy
}

func (e *Error) Error() string {
	if e.Details == "" {
		return e.Msg
	}
	return e.Msg + "; " + e.Details
}

// Errorf returns an internal error (code 999) without a remedy.
func Errorf(format string, args ...any) *Error {
	return &Error{Code: CodeInternal, Msg: fmt.Sprintf(format, args...)}
}

// ConfigError returns an error about the configuration (code 7).
func ConfigError(remedy, format string, args ...any) *Error {
	return &Error{Code: CodeInvalidConfig, Msg: fmt.Sprintf(format, args...), Details: remedy}
}

// WithDetails returns the error with a remedy.
func (e *Error) WithDetails(format string, args ...any) *Error {
	c := *e
	c.Details = fmt.Sprintf(format, args...)
	return &c
}

// AsError turns any error into one that can be printed. The text of wrapping
// errors is kept in front of a wrapped Error's message, and its code is kept.
func AsError(err error) *Error {
	var e *Error
	if !errors.As(err, &e) {
		var c *conf.Error
		if errors.As(err, &c) {
			return &Error{Code: CodeInvalidConfig, Msg: err.Error(), Details: "correct that key in the network's configuration"}
		}
		return &Error{Code: CodeInternal, Msg: err.Error()}
	}
	outer, ok := strings.CutSuffix(err.Error(), e.Error())
	if !ok {
		return &Error{Code: e.Code, Msg: err.Error()}
	}
	return &Error{Code: e.Code, Msg: outer + e.Msg, Details: e.Details}
}
