package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/settings"
)

// cluster is a client of etcd.
type cluster struct {
	*clientv3.Client
	endpoints  []string
	time       time.Duration // for a transaction, with all attempts
	attempt    time.Duration
	lostAnswer bool // to a transaction, which may be carried out all the same
	lastError  error
}

// dial makes a client. Nothing is sent yet, unless there is a user, whose password is sent.
func dial(ctx context.Context, s *settings.Settings) (*cluster, error) {
	how, err := secure(s)
	if err != nil {
		return nil, err
	}
	c := &cluster{endpoints: s.Endpoints, time: s.Timeout, attempt: s.Timeout / 4}
	limited, end := context.WithTimeout(ctx, c.time)
	defer end()
	for {
		c.Client, err = clientv3.New(clientv3.Config{
			Endpoints: s.Endpoints, TLS: how, Username: s.Username, Password: s.Password, Logger: zap.NewNop(), Context: ctx,
			DialTimeout:     c.attempt, // without one it waits for ever
			MaxUnaryRetries: 1,         // it is for us to repeat
		})
		if err == nil || !mayHelpToRepeat(err) {
			return c, c.explain(err)
		}
		if err := c.wait(limited, err); err != nil {
			return nil, err
		}
	}
}

// transaction is one that can be done twice: its answer may get lost.
type transaction struct {
	compare         []clientv3.Cmp
	then, otherwise []clientv3.Op
}

// commit has the cluster carry out a transaction, and asks another member when one does not answer.
func (c *cluster) commit(ctx context.Context, t transaction) (*clientv3.TxnResponse, error) {
	ctx, end := context.WithTimeout(ctx, c.time)
	defer end()
	for {
		attempt, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), c.attempt)
		answer, err := c.Txn(attempt).If(t.compare...).Then(t.then...).Else(t.otherwise...).Commit()
		cancel()
		if err == nil || !mayHelpToRepeat(err) {
			return answer, c.explain(err)
		}
		c.lostAnswer = true
		if err := c.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

// wait waits a moment before another attempt. When there is no time for one it says what made the last one fail that did so by itself.
func (c *cluster) wait(ctx context.Context, err error) error {
	if c.lastError == nil || !errors.Is(err, context.DeadlineExceeded) && !isCode(err, codes.DeadlineExceeded) {
		c.lastError = err
	}
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return c.explain(c.lastError)
	}
}

// mayHelpToRepeat reports whether another member may answer, or the same one a moment later.
func mayHelpToRepeat(err error) bool {
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
		return plugin.Errorf("see to it that the user in ipam.etcd may read and write all keys below ipam.etcd.prefix", "etcd refuses: %w", err)
	case isCode(err, codes.ResourceExhausted):
		return plugin.CodeErrorf(types.ErrTryAgainLater, "make room in etcd: `etcdctl alarm list`, then compact and defragment it, and `etcdctl alarm disarm`", "etcd refuses: %w", err)
	}
	return unreachable(c.endpoints, err)
}

func unreachable(endpoints []string, err error) error {
	return plugin.CodeErrorf(types.ErrTryAgainLater, "see whether this host reaches them, and `etcdctl endpoint status` whether most members run; the call can be repeated",
		"no member of the etcd cluster answers at %s: %w", strings.Join(endpoints, ", "), err)
}

// secure returns how to talk to endpoints of https, nil for those of http.
func secure(s *settings.Settings) (*tls.Config, error) {
	if !s.IsSecure() {
		return nil, nil
	}
	c, err := transport.TLSInfo{TrustedCAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile}.ClientConfig()
	if err != nil {
		return nil, plugin.ConfigError("correct caFile, certFile and keyFile in ipam.etcd", "etcd: read the certificates: %w", err)
	}
	return c, nil
}
