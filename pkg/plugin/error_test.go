package plugin

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
)

func TestAsError(t *testing.T) {
	inner := &types.Error{Code: types.ErrTryAgainLater, Msg: "no address left", Details: "add a range"}
	plain := &types.Error{Code: types.ErrInvalidNetNS, Msg: "gone"}
	wrongKey := &conf.Error{Path: "ipam.type", Want: "a string", Got: "the number 7"}
	tests := []struct {
		name string
		err  error
		want types.Error
	}{
		{"an Error", inner, *inner},
		{"wrapped", fmt.Errorf("ADD: ipam: %w", inner), types.Error{Code: types.ErrTryAgainLater, Msg: "ADD: ipam: no address left", Details: "add a range"}},
		{"wrapped twice", fmt.Errorf("a: %w", fmt.Errorf("b: %w", inner)), types.Error{Code: types.ErrTryAgainLater, Msg: "a: b: no address left", Details: "add a range"}},
		{"wrapped, no details", fmt.Errorf("ADD: %w", plain), types.Error{Code: types.ErrInvalidNetNS, Msg: "ADD: gone", Details: ""}},
		{"wrapped with words behind", fmt.Errorf("ADD: %w (again)", inner), types.Error{Code: types.ErrTryAgainLater, Msg: "ADD: no address left; add a range (again)", Details: ""}},
		{"joined", errors.Join(errors.New("first"), inner), types.Error{Code: types.ErrTryAgainLater, Msg: "first\nno address left", Details: "add a range"}},
		{"joined in front", errors.Join(inner, errors.New("second")), types.Error{Code: types.ErrTryAgainLater, Msg: "no address left; add a range\nsecond", Details: ""}},
		{"with a cause", fmt.Errorf("ADD: %w", Errorf("free it", "add it: %w", unix.EBUSY)), types.Error{Code: types.ErrInternal, Msg: "ADD: add it: device or resource busy", Details: "free it"}},
		{"with a cause that has details", Errorf("outer", "add it: %w", inner), types.Error{Code: types.ErrInternal, Msg: "add it: no address left; add a range", Details: "outer"}},
		{"any other", errors.New("file exists"), types.Error{Code: types.ErrInternal, Msg: "file exists", Details: ""}},
		{"what is not permitted", fmt.Errorf("ADD: %w", Errorf("", "add it: %w", unix.EPERM)), types.Error{Code: types.ErrInternal, Msg: "ADD: add it: operation not permitted", Details: NotPermitted}},
		{"what is not permitted, with details", Errorf("ask", "add it: %w", unix.EPERM), types.Error{Code: types.ErrInternal, Msg: "add it: operation not permitted", Details: "ask"}},
		{"a key's", wrongKey, types.Error{Code: types.ErrInvalidNetworkConfig, Msg: `key "ipam.type": want a string, got the number 7`, Details: "correct that key in the network's configuration"}},
		{"a key's, wrapped", fmt.Errorf("host-local: %w", wrongKey),
			types.Error{Code: types.ErrInvalidNetworkConfig, Msg: `host-local: key "ipam.type": want a string, got the number 7`, Details: "correct that key in the network's configuration"}},
		{"a kernel's, wrapped", fmt.Errorf("ADD: %w", MissingLinkType("vrf", unix.EOPNOTSUPP)),
			types.Error{Code: types.ErrPluginNotAvailable, Msg: "ADD: the kernel has no links of type vrf: operation not supported", Details: "load the kernel module vrf, or use a kernel with that module"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := AsError(tt.err); *got != tt.want {
				t.Errorf("got  %#v\nwant %#v", *got, tt.want)
			}
		})
	}
}

func TestErrorsKeepTheirCause(t *testing.T) {
	for _, err := range []error{Errorf("free it", "add it: %w", unix.EBUSY), ConfigError("free it", "add it: %w", unix.EBUSY)} {
		if !errors.Is(err, unix.EBUSY) || err.Error() != "add it: device or resource busy; free it" {
			t.Errorf("%v", err)
		}
	}
}
