package contivk8s

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/cache"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

// patience is how long a daemon is waited for that is not there: it may be starting anew.
const patience = 2 * time.Second

// call sends a request for an attachment, with the container's namespace if that is there. contiv's daemon understands the path of a process'
// namespace only: for another one it gets that of a thread of ours which is in the namespace until the answer is there.
func call(r *plugin.Request, conn *contiv.Conn, path string, q contiv.Request) (answer contiv.Answer, err error) {
	n := r.NS()
	switch {
	case n == nil:
		q.Netns = pathOfGone(r.Netns)
		return conn.Post(path, q, -1, q.Netns)
	case isOfProcess(r.Netns):
		q.Netns = r.Netns
		return conn.Post(path, q, int(n.Fd()), r.Netns)
	}
	err = r.Inside(func() error {
		q.Netns = fmt.Sprintf("/proc/%d/ns/net", unix.Gettid())
		answer, err = conn.Post(path, q, int(n.Fd()), r.Netns)
		return err
	})
	return answer, err
}

// isOfProcess reports whether a path is that of the namespace of a process, /proc/PID/ns/net.
func isOfProcess(path string) bool {
	inProc, ok := strings.CutPrefix(path, "/proc/")
	pid, isNet := strings.CutSuffix(inProc, "/ns/net")
	return ok && isNet && pid != "" && strings.Trim(pid, "0123456789") == ""
}

// pathOfGone returns the path of a namespace that is gone, "" if there is one by now: it is not the container's, but may be the host's.
func pathOfGone(path string) string {
	n, err := netns.Open(path)
	if errors.Is(err, netns.ErrNotExist) {
		return path
	}
	if err == nil {
		_ = n.Close()
	}
	return ""
}

// tell has the daemon delete an attachment. An error with code 11 says that it may succeed later; reached says whether the daemon was there.
func tell(ctx context.Context, r *plugin.Request, record contiv.Record, patience time.Duration) (reached bool, err error) {
	conn, err := contiv.Dial(ctx, record.Socket, patience)
	if err != nil {
		return false, unreachable(ctx, record.Socket, err)
	}
	defer conn.Close()
	answer, err := call(r, conn, contiv.DelPath, record.Request())
	if err != nil {
		return true, silent(ctx, record.Socket, err)
	}
	if answer.Code == 200 && len(answer.Body) == 0 {
		return true, nil
	}
	return true, failureIn(answer, record.Socket)
}

// release has the daemon delete an attachment, and reports whether it has. If it can't be told, or fails, the deletion is queued; not if nobody
// knows that there was one, or else each DEL that follows a failed ADD would be: contiv's own plugin notes nothing, but libcni keeps its result.
func release(ctx context.Context, r *plugin.Request, record contiv.Record) (done bool, err error) {
	isKnown := !record.Since.IsZero() || record.Pod != "" && (r.PrevResult != nil || cache.Has(r.Results, r.Key))
	reached, err := tell(ctx, r, record, 0)
	if err != nil && !isKnown {
		r.WarnOf(err)
		return false, nil
	}
	if err != nil {
		r.WarnOf(fmt.Errorf("the deletion is left for later: %w", err))
		if err := queue(record, reached); err != nil || reached {
			return false, err
		}
		// The daemon may have been started meanwhile, and have read the queue before this was in it.
		if _, err := tell(ctx, r, record, 0); err != nil {
			return false, nil
		}
	}
	return true, errors.Join(contiv.Remove(record.Key), contiv.RemoveDeletion(record.Key))
}

// queue notes the deletion of an attachment, in place of the attachment.
func queue(record contiv.Record, reached bool) error {
	record.Since, record.Tried = time.Now(), time.Time{}
	if reached {
		record.Tried = record.Since
	}
	if err := record.Queue(); err != nil {
		return plugin.CodeErrorf(types.ErrIOFailure, "start contiv's daemon, or make "+contiv.Dir+" writable", "the deletion can't be left for later: %w", err)
	}
	return contiv.Remove(record.Key)
}

// settle has the daemon delete what it has of an earlier attachment with the same key, whose deletion it has not had.
func settle(ctx context.Context, r *plugin.Request) error {
	if contiv.ReadDeletion(r.Key) == nil {
		return nil
	}
	lock, err := contiv.LockDeletions(ctx, time.Minute)
	if err != nil {
		return err
	}
	defer lock.Release()
	d := contiv.ReadDeletion(r.Key)
	if d == nil {
		return nil
	}
	_, err = tell(ctx, &plugin.Request{Key: d.Key}, *d, patience)
	if plugin.IsTryAgain(err) {
		return err
	}
	r.WarnOf(err)
	return contiv.RemoveDeletion(d.Key)
}

// The limits for queued deletions in a call that has reached the daemon.
const (
	mostAtOnce   = 16
	deliveryTime = 5 * time.Second
	againAfter   = time.Minute // if the daemon has failed
	giveUpAfter  = 24 * time.Hour
)

// deliver tells the daemon of deletions that it has not had, unless somebody does so already.
func deliver(ctx context.Context, r *plugin.Request, socket string) {
	list, err := contiv.Deletions()
	r.WarnOf(err)
	if len(list) == 0 {
		return
	}
	lock, err := contiv.LockDeletions(ctx, 0)
	if err != nil {
		return
	}
	defer lock.Release()
	ctx, end := context.WithTimeout(ctx, deliveryTime)
	defer end()
	sent := 0
	for _, d := range list {
		if sent == mostAtOnce || ctx.Err() != nil {
			return
		}
		if d.Socket != socket || time.Since(d.Tried) < againAfter {
			continue
		}
		sent++
		reached, err := deliverOne(ctx, d)
		r.WarnOf(err)
		if !reached {
			return
		}
	}
}

// deliverOne tells the daemon of a deletion, if that is still to be done.
func deliverOne(ctx context.Context, d contiv.Record) (reached bool, err error) {
	now := contiv.ReadDeletion(d.Key)
	if now == nil {
		return true, nil
	}
	if now.IsSuperseded() {
		return true, contiv.RemoveDeletion(d.Key)
	}
	reached, err = tell(ctx, &plugin.Request{Key: d.Key}, *now, 0)
	switch {
	case err == nil:
		return true, contiv.RemoveDeletion(d.Key)
	case !reached:
		return false, err
	case time.Since(now.Since) > giveUpAfter:
		return true, errors.Join(fmt.Errorf("the deletion of %s is given up: %w", d.Key, err), contiv.RemoveDeletion(d.Key))
	}
	now.Tried = time.Now()
	return true, errors.Join(err, now.Queue())
}
