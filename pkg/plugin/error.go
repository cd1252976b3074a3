package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
)

// Errorf returns an internal error (code 999): what failed, on what, with which value, and what to do about it. %w keeps the cause.
func Errorf(remedy, format string, args ...any) error {
	return CodeErrorf(types.ErrInternal, remedy, format, args...)
}

// ConfigError returns an error about the configuration (code 7), and what to do about it.
func ConfigError(remedy, format string, args ...any) error {
	return CodeErrorf(types.ErrInvalidNetworkConfig, remedy, format, args...)
}

// CodeErrorf returns an error with any of CNI's codes, and what to do about it.
func CodeErrorf(code uint, remedy, format string, args ...any) error {
	return explained{code, remedy, fmt.Errorf(format, args...)}
}

// explained is an error in CNI's form that keeps its cause.
type explained struct {
	code   uint
	remedy string
	cause  error
}

func (e explained) shown() *types.Error { return types.NewError(e.code, e.cause.Error(), e.remedy) }

func (e explained) Error() string { return e.shown().Error() }

func (e explained) Unwrap() []error { return []error{e.shown(), e.cause} }

// Unavailable returns an error of STATUS with the code for what the plugin needs of the node (50).
func Unavailable(err error) error {
	e := AsError(err)
	return types.NewError(types.ErrPluginNotAvailable, e.Msg, e.Details)
}

// NotPermitted is the remedy for what the kernel lets only a network namespace's own root do.
const NotPermitted = "the plugin needs CAP_NET_ADMIN in the host's network namespace: run the runtime as root; " +
	"without root, in a user namespace that has made the network namespace, too (`unshare --user --map-root-user --net --mount`)"

// AsError turns any error into one that can be printed. The text of wrapping errors is kept in front of a wrapped types.Error's
// message, and its code and details are kept. An error that has a Remedy gets it for details, and one that has none, of a kernel that does not
// permit something, NotPermitted.
func AsError(err error) *types.Error {
	e := asError(err)
	if e.Details == "" && errors.Is(err, unix.EPERM) {
		e = types.NewError(e.Code, e.Msg, NotPermitted)
	}
	return e
}

func asError(err error) *types.Error {
	var e *types.Error
	if !errors.As(err, &e) {
		var c *conf.Error
		if errors.As(err, &c) {
			return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "correct that key in the network's configuration")
		}
		if missing, is := errors.AsType[*MissingFeature](err); is {
			return types.NewError(types.ErrPluginNotAvailable, err.Error(), missing.Remedy())
		}
		remedy := ""
		if known := interface{ Remedy() string }(nil); errors.As(err, &known) {
			remedy = known.Remedy()
		}
		return types.NewError(types.ErrInternal, err.Error(), remedy)
	}
	outer, ok := strings.CutSuffix(err.Error(), e.Error())
	if !ok {
		return types.NewError(e.Code, err.Error(), "")
	}
	return types.NewError(e.Code, outer+e.Msg, e.Details)
}

// IsTryAgain reports whether an error has the code of what may succeed later (11).
func IsTryAgain(err error) bool { return err != nil && AsError(err).Code == types.ErrTryAgainLater }
