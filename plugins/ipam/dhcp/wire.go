package dhcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Between plugin and daemon, over a unix socket: a request, which is a line with a JSON object, and an answer, which is another one.
// docs/plugins/dhcp.md has both.

// mostLine is how many bytes a line may have.
const mostLine = 1 << 20

// errDown says that nobody listens.
var errDown = errors.New("the DHCP daemon is down")

// Request is what the plugin asks the daemon for: ADD, DEL, CHECK or STATUS.
type Request struct {
	Command plugin.Command
	plugin.Key
	Netns string
	Args  string       // CNI_ARGS
	IPAM  *conf.Object // the object ipam of the configuration
}

// Document returns the request as it is sent.
func (q *Request) Document() *conf.Object {
	o := conf.New()
	o.Set("command", string(q.Command))
	q.Key.SetIn(o)
	o.Set("netns", q.Netns)
	o.Set("args", q.Args)
	o.Set("ipam", q.IPAM)
	return o
}

// ParseRequest reads a request. It returns what it has read of a wrong one, too.
func ParseRequest(o *conf.Object) (*Request, error) {
	q := &Request{Key: plugin.KeyIn(o), IPAM: conf.New()}
	command := ""
	o.String("command", &command)
	q.Command = plugin.Command(command)
	o.String("netns", &q.Netns)
	o.String("args", &q.Args)
	if o.Has("ipam") {
		q.IPAM = o.Object("ipam")
	}
	for _, name := range []string{q.Network, q.ContainerID} {
		if err := plugin.ValidateName(name); err != nil {
			return q, plugin.ConfigError("the plugin sends it; correct it there", "%q is no name: %v", name, err)
		}
	}
	if q.Command != plugin.Status && (q.Network == "" || q.ContainerID == "" || q.IfName == "" || filepath.Base(q.IfName) != q.IfName) {
		return q, plugin.ConfigError("the plugin sends them; see docs/plugins/dhcp.md", "a request needs network, containerID and ifname")
	}
	return q, o.Err()
}

// Options returns what the request's configuration asks for.
func (q *Request) Options() (*Options, error) { return Read(q.Document(), q.Args) }

// ReadLine reads the document of a request or an answer.
func ReadLine(from io.Reader) (*conf.Object, error) {
	line, err := bufio.NewReader(io.LimitReader(from, mostLine)).ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	return conf.Parse(line)
}

// WriteLine writes one.
func WriteLine(to io.Writer, o *conf.Object) error {
	_, err := to.Write(append(o.JSON(), '\n'))
	return err
}

// call asks the daemon. Its own errors are CNI errors.
func call(ctx context.Context, socket string, q *Request) (*conf.Object, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: %w", errDown, plugin.CodeErrorf(types.ErrTryAgainLater, "start it: `dhcp daemon`, or its systemd unit; see docs/plugins/dhcp.md",
			"error dialing DHCP daemon: %w", err))
	}
	if err != nil {
		return nil, fmt.Errorf("error dialing DHCP daemon: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := WriteLine(conn, q.Document()); err != nil {
		return nil, noAnswer(ctx, socket, err)
	}
	answer, err := ReadLine(conn)
	if err != nil {
		return nil, noAnswer(ctx, socket, err)
	}
	return answer, failureIn(answer)
}

// noAnswer says why there is no answer.
func noAnswer(ctx context.Context, socket string, err error) error {
	if ctx.Err() != nil {
		return types.NewError(types.ErrTryAgainLater, "the DHCP daemon has not answered: "+context.Cause(ctx).Error(),
			"see what it logs: it may be waiting for a server")
	}
	return plugin.CodeErrorf(types.ErrTryAgainLater, "repeat the call, and see what the daemon logs; if another program listens there, such as the reference plugin's daemon, "+
		"stop it and start this one", "no answer that can be read from the DHCP daemon at %s: %v", socket, err)
}

// failureIn returns the error in an answer, nil if there is none.
func failureIn(answer *conf.Object) error {
	if !answer.Has("error") {
		return answer.Err()
	}
	code, e, o := 0, &types.Error{}, answer.Object("error")
	o.Int("code", &code)
	o.String("msg", &e.Msg)
	o.String("details", &e.Details)
	e.Code = uint(max(code, 1))
	return errors.Join(answer.Err(), e)
}

// Failure returns the answer that has an error.
func Failure(err error) *conf.Object {
	e, o, answer := plugin.AsError(err), conf.New(), conf.New()
	o.Set("code", int(e.Code))
	o.Set("msg", e.Msg)
	o.Set("details", e.Details)
	answer.Set("error", o)
	return answer
}
