package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/settings"
)

// cluster is a client of etcd.
type cluster struct {
	*clientv3.Client
	settings   *settings.Settings
	tls        *tls.Config   // nil over http
	time       time.Duration // for a transaction, with all attempts
	attempt    time.Duration
	pause      time.Duration // before the next attempt
	lostAnswer bool          // to a transaction, which may be carried out all the same
	lastError  error
	isGreeted  bool // by findMistake
}

// dial makes a client. Nothing is sent yet, unless there is a user, whose password is sent.
func dial(ctx context.Context, s *settings.Settings) (*cluster, error) {
	how, err := secure(s)
	if err != nil {
		return nil, err
	}
	c := &cluster{settings: s, tls: how, time: s.Timeout, pause: 50 * time.Millisecond}
	if end, is := ctx.Deadline(); is { // a STATUS has less time, and is to ask another member too when one hangs
		c.time = min(c.time, time.Until(end))
	}
	c.attempt = c.time / 4
	if s.Password != "" {
		c.attempt = c.time / 2 // a member computes a tenth of a second for each that logs in
	}
	limited, end := context.WithTimeout(ctx, c.time)
	defer end()
	for {
		c.Client, err = clientv3.New(clientv3.Config{
			Endpoints: s.Endpoints, TLS: how, Username: s.Username, Password: s.Password, Logger: zap.NewNop(), Context: ctx,
			DialTimeout:     c.attempt, // without one it waits for ever
			MaxUnaryRetries: 2,         // once more with a new token; else it is for us to repeat
			DialOptions:     []grpc.DialOption{grpc.WithChainUnaryInterceptor(failWithoutMember)},
		})
		if err == nil || !mayHelpToRepeat(err) {
			return c, c.explain(err)
		}
		if err := c.wait(limited, err); err != nil {
			return nil, err
		}
	}
}

// failWithoutMember has a call fail at once when no member can be connected to. The client of etcd would wait, and not say why.
func failWithoutMember(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return call(ctx, method, request, reply, conn, append(options, grpc.WaitForReady(false))...)
}

// transaction is one that can be done twice: its answer may get lost.
type transaction struct {
	compare         []clientv3.Cmp
	then, otherwise []clientv3.Op
}

// commit has the cluster carry out a transaction, and asks another member when one does not answer.
func (c *cluster) commit(ctx context.Context, t transaction) (*clientv3.TxnResponse, error) {
	return repeat(ctx, c, func(attempt context.Context) (*clientv3.TxnResponse, error) {
		answer, err := c.Txn(attempt).If(t.compare...).Then(t.then...).Else(t.otherwise...).Commit()
		c.lostAnswer = c.lostAnswer || err != nil && mayHelpToRepeat(err)
		return answer, err
	})
}

// member returns what the member that answers says of itself.
func (c *cluster) member(ctx context.Context) (*pb.StatusResponse, error) {
	return repeat(ctx, c, func(attempt context.Context) (*pb.StatusResponse, error) {
		return pb.NewMaintenanceClient(c.ActiveConnection()).Status(attempt, &pb.StatusRequest{}) // the client's own Status dials once more
	})
}

// progress returns the revision of a member, and how many entries of etcd's log are committed.
func (c *cluster) progress(ctx context.Context) (revision, entries int64, err error) {
	is, err := c.member(ctx)
	if err != nil {
		return 0, 0, err
	}
	return is.Header.Revision, int64(is.RaftIndex), nil
}

// checkRoom fails if the cluster takes nothing new, as its quota is used up (the alarm NOSPACE).
func (c *cluster) checkRoom(ctx context.Context) error {
	is, err := c.member(ctx)
	if err == nil && slices.ContainsFunc(is.Errors, func(text string) bool { return strings.Contains(text, pb.AlarmType_NOSPACE.String()) }) {
		err = c.explain(rpctypes.ErrNoSpace)
	}
	return err
}

// repeat calls etcd until a member answers, or the time is over.
func repeat[T any](ctx context.Context, c *cluster, call func(context.Context) (T, error)) (answer T, err error) {
	ctx, end := context.WithTimeout(ctx, c.time)
	defer end()
	for {
		attempt, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), c.attempt)
		answer, err = call(attempt)
		cancel()
		if err == nil || !mayHelpToRepeat(err) {
			return answer, c.explain(err)
		}
		if err := c.wait(ctx, err); err != nil {
			return answer, err
		}
	}
}

// wait waits a moment before another attempt, unless the members are called in a wrong way. When there is no time for one it says what made the
// last one fail that did so by itself.
func (c *cluster) wait(ctx context.Context, err error) error {
	if c.lastError == nil || !errors.Is(err, context.DeadlineExceeded) && !isCode(err, codes.DeadlineExceeded) {
		c.lastError = err
	}
	if !c.isGreeted {
		c.isGreeted = true
		if mistake := c.findMistake(ctx); mistake != nil {
			return mistake
		}
	}
	pause := c.pause/2 + rand.N(c.pause) // so that hosts which failed at once don't come back at once
	c.pause = min(2*c.pause, time.Second)
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return c.explain(c.lastError)
	}
}

// mayHelpToRepeat reports whether another member may answer, or the same one a moment later.
func mayHelpToRepeat(err error) bool {
	if errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) { // the member lags behind the one that gave the token
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || isCode(err, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown)
}

func isCode(err error, list ...codes.Code) bool {
	code := status.Code(err)
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		code = known.Code()
	}
	for _, c := range list {
		if c == code {
			return true
		}
	}
	return false
}

// explain says what can be done about an error of etcd. That a lease is gone is left to the caller.
func (c *cluster) explain(err error) error {
	switch {
	case err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound):
		return err
	case isCode(err, codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.FailedPrecondition):
		return plugin.ConfigError("see to it that the user in ipam.etcd may read and write all keys below ipam.etcd.prefix", "etcd refuses: %w", err)
	case isCode(err, codes.ResourceExhausted):
		return plugin.CodeErrorf(types.ErrTryAgainLater, "make room in etcd: `etcdctl alarm list`, then compact and defragment it, and `etcdctl alarm disarm`", "etcd refuses: %w", err)
	}
	return plugin.CodeErrorf(types.ErrTryAgainLater, "see whether this host reaches them, and `etcdctl endpoint status` whether most members run; the call can be repeated",
		"no member of the etcd cluster answers at %s: %w", strings.Join(c.settings.Endpoints, ", "), err)
}
