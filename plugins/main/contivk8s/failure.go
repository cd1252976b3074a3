package contivk8s

import (
	"cmp"
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

// The codes of our own errors, beside those of contiv's daemon.
const (
	codeOther     = 100 // the daemon failed, and does not say at what
	codeNotThere  = 110 // the daemon says that it succeeded, but the container has no network
	codeForbidden = 120
	codeNotFound  = 121
	codeNoContiv  = 122 // the daemon answers what contiv's never does
)

// explain returns a code and a remedy for what a daemon says that it failed at. All but the last are contiv's.
func explain(says, socket string) (code uint, remedy string) {
	switch says {
	case "Error getting labels":
		return 101, "the daemon reads the pod's labels from the API server: see whether that can be reached, and whether the pod is still there"
	case "Error creating EP":
		return 102, "see the logs of netmaster, which hands out addresses, and of netplugin; another endpoint of this container may be left"
	case "Error moving to netns":
		return 103, "see netplugin's log; the namespace's path must lead there from netplugin's container, too (hostPID)"
	case "Error setting interface attributes":
		return 104, "see netplugin's log; an interface of that name may be in the container"
	case "Error setting default gateway":
		return 105, "see netplugin's log; the gateway must be in the network's subnet"
	}
	return codeOther, "see the log of the daemon that listens at " + socket
}

// failureIn returns the error in an answer, nil if there is none.
func failureIn(a contiv.Answer, socket string) error {
	switch a.Code {
	case 200, 500:
	case 403:
		return plugin.CodeErrorf(codeForbidden, "the program that listens at "+socket+" refuses calls of this user, or is not contiv's daemon", "Contiv:access denied")
	case 404:
		return plugin.CodeErrorf(codeNotFound, "the program that listens at "+socket+" is not contiv's daemon, nor `cnictl agent --contiv`: see \"socket\"", "Contiv:page not found")
	case 503:
		says, _ := contiv.ParseResponse(a.Body)
		return types.NewError(types.ErrTryAgainLater, "Contiv:"+cmp.Or(says.ErrMsg, "the daemon has too much to do"), cmp.Or(says.ErrInfo, "repeat the call"))
	default:
		return plugin.CodeErrorf(codeNoContiv, "the program that listens at "+socket+" is not contiv's daemon, nor `cnictl agent --contiv`: see \"socket\"",
			"Contiv:unexpected answer %.100q", a.Status)
	}
	says, err := contiv.ParseResponse(a.Body)
	switch {
	case a.Code == 200 && err != nil:
		return unreadable(socket, fmt.Errorf("its body is %w", err))
	case a.Code == 200 && says.Result == 0:
		return nil
	case says.Result > 1:
		return types.NewError(uint(says.Result), "Contiv:"+cmp.Or(says.ErrMsg, "internal server error"), says.ErrInfo)
	}
	code, remedy := explain(says.ErrMsg, socket)
	details := remedy
	if says.ErrInfo != "" {
		details = says.ErrInfo + "; " + remedy
	}
	return types.NewError(code, "Contiv:"+cmp.Or(says.ErrMsg, "internal server error"), details)
}

// refused reports whether an answer says that the daemon has not even begun.
func refused(a contiv.Answer) bool { return a.Code != 200 && a.Code != 500 }

// unreachable is the error of a daemon that is not there.
func unreachable(ctx context.Context, socket string, err error) error {
	return plugin.CodeErrorf(types.ErrTryAgainLater, "start contiv's daemon, or `cnictl agent --contiv "+socket+"`; if it listens elsewhere, set \"socket\"",
		"contiv's daemon is not there: %w%s", err, stopped(ctx))
}

// unreadable is the error of a daemon that does not answer as it has to.
func unreadable(socket string, err error) error {
	return plugin.CodeErrorf(types.ErrTryAgainLater, "see the log of the daemon; repeat the call", "contiv's daemon at %s gives no answer that can be read: %w", socket, err)
}

// silent is the error of a daemon that has not answered when the call had to end.
func silent(ctx context.Context, socket string, err error) error {
	if ctx.Err() == nil {
		return unreadable(socket, err)
	}
	return plugin.CodeErrorf(types.ErrTryAgainLater, "see the log of the daemon; repeat the call", "contiv's daemon at %s has not answered%s", socket, stopped(ctx))
}

// stopped says why a call has ended, "" if it has not.
func stopped(ctx context.Context) string {
	if ctx.Err() == nil {
		return ""
	}
	return ": " + context.Cause(ctx).Error()
}
