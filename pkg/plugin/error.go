package plugin

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/kernel"
)

// Errorf returns an internal error (code 999): what failed, on what, with which value, and what to do about it.
func Errorf(remedy, format string, args ...any) *types.Error {
	return types.NewError(types.ErrInternal, fmt.Sprintf(format, args...), remedy)
}

// ConfigError returns an error about the configuration (code 7), and what to do about it.
func ConfigError(remedy, format string, args ...any) *types.Error {
	return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf(format, args...), remedy)
}

// AsError turns any error into one that can be printed. The text of wrapping errors is kept in front of a wrapped types.Error's
// message, and its code and details are kept. An error that has a Remedy gets it for details.
func AsError(err error) *types.Error {
	var e *types.Error
	if !errors.As(err, &e) {
		var c *conf.Error
		if errors.As(err, &c) {
			return ConfigError("correct that key in the network's configuration", "%v", err)
		}
		if missing, is := errors.AsType[*kernel.Missing](err); is {
			return types.NewError(types.ErrPluginNotAvailable, err.Error(), missing.Remedy())
		}
		remedy := ""
		if known := interface{ Remedy() string }(nil); errors.As(err, &known) {
			remedy = known.Remedy()
		}
		return Errorf(remedy, "%v", err)
	}
	outer, ok := strings.CutSuffix(err.Error(), e.Error())
	if !ok {
		return types.NewError(e.Code, err.Error(), "")
	}
	return types.NewError(e.Code, outer+e.Msg, e.Details)
}
