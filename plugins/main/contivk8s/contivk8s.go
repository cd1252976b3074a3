// Package contivk8s has a daemon on the node attach the container: contiv's netplugin, or `cnictl agent --contiv`. It speaks contiv's protocol,
// looks at what the daemon has made, and remembers it until the daemon has deleted it.
package contivk8s

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

// Plugin is the contivk8s plugin.
type Plugin struct{}

// Add has the daemon attach the container, and reports what that has made.
func (Plugin) Add(ctx context.Context, r *plugin.Request) (_ *types100.Result, err error) {
	c, err := parse(r.Config)
	if err != nil {
		return nil, err
	}
	pod, namespace, err := podOf(r)
	if err != nil {
		return nil, err
	}
	if err := attach.RefuseSecond(r); err != nil {
		return nil, err
	}
	ctx, end := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("out of time after %v, which is the configuration's \"timeout\"", c.timeout))
	defer end()
	if err := r.Step(ctx, "note the attachment for DEL"); err != nil {
		return nil, err
	}
	if err := settle(ctx, r); err != nil {
		return nil, err
	}
	var undo plugin.Undo
	defer undo.OnError(ctx, &err)
	record := contiv.Record{Key: r.Key, Pod: pod, Namespace: namespace, Socket: c.socket, Since: time.Now()}
	undo.Push("remove the note", func(context.Context) error { return contiv.Remove(r.Key) })
	if err := record.Write(); err != nil {
		return nil, plugin.CodeErrorf(types.ErrIOFailure, "make "+contiv.Dir+" writable", "note the attachment for DEL: %w", err)
	}
	conn, err := contiv.Dial(ctx, c.socket, patience)
	if err != nil {
		return nil, unreachable(ctx, c.socket, err)
	}
	defer conn.Close()
	if err := r.Step(ctx, "call contiv's daemon at "+c.socket); err != nil {
		return nil, err
	}
	answer, err := call(r, conn, contiv.AddPath, record.Request())
	if err == nil && refused(answer) {
		return nil, failureIn(answer, c.socket)
	}
	undo.Push("have the daemon delete it", func(unwinding context.Context) error {
		until, _ := ctx.Deadline()
		own, end := context.WithDeadline(unwinding, until)
		defer end()
		_, err := release(own, r, record)
		return err
	})
	if err != nil {
		return nil, silent(ctx, c.socket, err)
	}
	if err := failureIn(answer, c.socket); err != nil {
		return nil, err
	}
	made, err := look(ctx, r, c, answer)
	if err != nil {
		return nil, err
	}
	deliver(ctx, r, c.socket)
	return made, nil
}

// look returns the result: what is in the container, which has to have the addresses that the daemon names.
func look(ctx context.Context, r *plugin.Request, c *config, answer contiv.Answer) (*types100.Result, error) {
	says, err := contiv.ParseResponse(answer.Body)
	if err != nil {
		return nil, unreadable(c.socket, err)
	}
	var addresses []netip.Prefix
	for _, text := range []string{says.IPAddress, says.IPv6Address} {
		if text == "" {
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, notThere(c, "it names the address %.60q, which is none with a prefix length", text)
		}
		addresses = append(addresses, p)
	}
	if len(addresses) == 0 {
		return nil, notThere(c, "it names no address")
	}
	made, err := attach.Found(ctx, r, &c.Config, addresses)
	if err != nil {
		return nil, notThere(c, "%s", plugin.AsError(err).Msg)
	}
	return made, nil
}

// notThere is the error of a container that has no network, though the daemon says so.
func notThere(c *config, format string, args ...any) error {
	return plugin.CodeErrorf(codeNotThere, "see the log of the daemon at "+c.socket+"; what it has made is deleted again",
		"Contiv:the daemon says that it has attached the container, but "+format, args...)
}

// Del has the daemon delete the attachment. If the daemon is down, or fails, that is done later.
func (Plugin) Del(ctx context.Context, r *plugin.Request) error {
	c := locate(r.Config)
	record := recordOf(r, c)
	timeout := min(c.timeout, delTimeout)
	ctx, end := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("out of time after %v", timeout))
	defer end()
	r.Announce("call contiv's daemon at " + record.Socket)
	done, err := release(ctx, r, record)
	if done {
		deliver(ctx, r, record.Socket)
	}
	return err
}

// recordOf returns what is known of the attachment of a DEL.
func recordOf(r *plugin.Request, c *config) contiv.Record {
	if noted := cmp.Or(contiv.Read(r.Key), contiv.ReadDeletion(r.Key)); noted != nil {
		return *noted
	}
	pod, namespace, _ := podOf(r)
	return contiv.Record{Key: r.Key, Pod: pod, Namespace: namespace, Socket: c.socket}
}

// delTimeout is how long a daemon has for a DEL: runtimes wait for it.
const delTimeout = 10 * time.Second

// Mend looks at what is in the container, and the other end of it. That is the daemon's, which has made it: nothing of it is put back.
func (Plugin) Mend(ctx context.Context, r *plugin.Request, m *plugin.Mender) error {
	if _, err := parse(r.Config); err != nil {
		return err
	}
	m.LookOnly()
	a, err := attach.BeginMend(ctx, r, &attach.Config{}, "", m)
	if err != nil {
		return err
	}
	m.Fail(a.Mend(ctx))
	if slices.ContainsFunc(r.PrevResult.Interfaces, func(f *types100.Interface) bool { return f.Sandbox == "" }) {
		_, err = a.MendHostEnd()
	}
	return err
}

// Status reports whether containers can be entered, and the daemon listens. One that starts anew is waited for.
func (Plugin) Status(ctx context.Context, r *plugin.Request) error {
	c, err := parse(r.Config)
	if err != nil {
		return err
	}
	if err := netns.CheckEntry(); err != nil {
		return err
	}
	conn, err := contiv.Dial(ctx, c.socket, patience)
	if err != nil {
		return plugin.Unavailable(unreachable(ctx, c.socket, err))
	}
	conn.Close()
	return nil
}

// Stores returns what is noted of attachments, whatever the configuration.
func (Plugin) Stores(*plugin.Request) []plugin.Store { return []plugin.Store{notes{}} }
