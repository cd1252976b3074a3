package etcd

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/pkg/cache"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/presence"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/notes"
)

// Each transaction that takes an address writes the mark of its host as well, and the host notes the revision. No other host writes that key. A mark
// that is older than the note, or gone, says that etcd was restored from an older snapshot or made anew: it lacks what hosts have taken since.
//
// A host that has taken nothing since the snapshot has no such note. It looks at etcd's log: each revision is an entry of it, so that there are never fewer
// entries than revisions, until a restore keeps the revision and begins a new log.

// errPast says that etcd has refused a transaction of this host, which then looks at what etcd knows of it.
var errPast = errors.New("etcd does not know this host as the host knows itself")

// restoration is written when a host notices that etcd was restored. While it is there nobody takes a new address. It ends with the grace.
type restoration struct {
	ID      string    `json:"id"`
	Host    string    `json:"host"` // the first that noticed it
	Noticed time.Time `json:"noticed"`
}

// mark is what a host's mark says. Two copies of one disk differ in the boot.
type mark struct {
	Number string `json:"number"`
	Boot   string `json:"boot"`
}

func (p *pool) mark() mark { return mark{p.number, thisBoot()} }

func (m mark) text() string {
	text, _ := json.Marshal(m)
	return string(text)
}

func thisBoot() string {
	text, _ := state.Read("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// commitTake commits a transaction that takes addresses for an owner, in the past that this host knows. If it is refused for another reason, the owner's
// keys are returned.
func (p *pool) commitTake(ctx context.Context, o owner, t transaction) (answer *clientv3.TxnResponse, has *pb.RangeResponse, err error) {
	key, prefix, seen := p.space.mark(p.Host), p.space.attachment(o), p.ReadSeen(p.Host)
	t.compare = append(t.compare, p.isCurrent(seen)...)
	t.then = append(t.then, clientv3.OpPut(key, p.mark().text()), clientv3.OpGet(p.space.past()))
	t.otherwise = append([]clientv3.Op{clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())}, p.getPast()...)
	if answer, err = p.commit(ctx, t); err != nil {
		return nil, nil, err
	}
	if answer.Succeeded && (seen.Cluster == 0 || seen.Cluster == answer.Header.ClusterId) {
		if err := p.noteMark(ctx, seen, answer.Header, answer.Header.Revision); err != nil {
			return nil, nil, err
		}
		if is, err := p.isRestored(ctx, revisionOf(answer.Responses[len(answer.Responses)-1])); is || err != nil {
			return nil, nil, cmp.Or(err, errPast)
		}
		return answer, nil, nil
	}
	if answer.Succeeded || p.isOutdated(seen, answer) {
		return nil, nil, errPast
	}
	return answer, answer.Responses[0].GetResponseRange(), p.noteMark(ctx, seen, answer.Header, answer.Responses[1].GetResponseRange().Kvs[0].ModRevision)
}

// isCurrent says that etcd has the past that this host has seen, and was not restored.
func (p *pool) isCurrent(seen notes.Seen) []clientv3.Cmp {
	key := p.space.mark(p.Host)
	return []clientv3.Cmp{hasValue(key, p.mark().text()), clientv3.Compare(clientv3.ModRevision(key), ">", seen.Revision-1), isAbsent(p.space.restoration())}
}

// getPast reads what isCurrent compares.
func (p *pool) getPast() []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(p.space.mark(p.Host)), clientv3.OpGet(p.space.restoration())}
}

// isOutdated reports whether isCurrent does not hold, from an answer whose second and third part are those of getPast.
func (p *pool) isOutdated(seen notes.Seen, answer *clientv3.TxnResponse) bool {
	marks, restored := answer.Responses[1].GetResponseRange().Kvs, answer.Responses[2].GetResponseRange().Kvs
	return seen.Cluster != 0 && seen.Cluster != answer.Header.ClusterId || len(restored) > 0 ||
		len(marks) == 0 || marks[0].ModRevision < seen.Revision || string(marks[0].Value) != p.mark().text()
}

// noteMark notes that this host's mark was written at a revision, unless another call has found another past since the note was read.
func (p *pool) noteMark(ctx context.Context, read notes.Seen, of *pb.ResponseHeader, revision int64) error {
	return p.ChangeSeen(ctx, p.Host, func(s *notes.Seen) {
		if s.Cluster == read.Cluster && s.Restored == read.Restored {
			s.Cluster, s.Boot, s.Revision = of.ClusterId, thisBoot(), max(s.Revision, revision)
		}
	})
}

// isRestored reports whether etcd was restored after a revision. Its log then lacks that revision and all before it; a restore that was earlier has left it
// lacking fewer.
func (p *pool) isRestored(ctx context.Context, past int64) (bool, error) {
	if past == 0 {
		return false, nil
	}
	revision, entries, err := p.progress(ctx)
	return err == nil && revision-entries >= past, err
}

// revisionOf returns the revision at which a key was written that was read, 0 if it is not there.
func revisionOf(read *pb.ResponseOp) (revision int64) {
	for _, kv := range read.GetResponseRange().Kvs {
		revision = kv.ModRevision
	}
	return revision
}

// beginPast notes that all that is in etcd is of one past, for a network that is new. Earlier restores do not matter to the network.
func (p *pool) beginPast(ctx context.Context) error {
	key := p.space.past()
	_, err := p.commit(ctx, transaction{compare: []clientv3.Cmp{isAbsent(key)}, then: []clientv3.Op{clientv3.OpPut(key, "")}})
	return err
}

// isForgotten reports whether etcd lacks what this host has written.
func (h host) isForgotten() bool {
	return h.seen.Revision != 0 && (h.seen.Cluster != h.cluster || h.markedAt < h.seen.Revision)
}

// refuseCopy refuses a host of which another copy has written the mark.
func (p *pool) refuseCopy(is host) error {
	if is.lease != 0 && is.mark.Number != "" && is.mark.Number != p.number {
		return p.otherMachine("its number is " + is.mark.Number + ", ours " + p.number)
	}
	boot := thisBoot()
	if is.mark.Number == p.number && is.mark.Boot != boot && is.seen.Boot == boot && is.markedAt > is.seen.Revision {
		return plugin.ConfigError(fmt.Sprintf("on the copy set ipam.etcd.host to a name of its own, and remove %s and %s", p.Path, p.NumberFile()),
			"another machine with a copy of this host's disk is called %q in etcd", p.Host)
	}
	return nil
}

// sign writes this host's mark, unless it was written since it was read, and notes it.
func (p *pool) sign(ctx context.Context, is host) error {
	key := p.space.mark(p.Host)
	answer, err := p.commit(ctx, transaction{
		compare:   []clientv3.Cmp{hasRevision(key, is.markedAt)},
		then:      []clientv3.Op{clientv3.OpPut(key, p.mark().text())},
		otherwise: []clientv3.Op{clientv3.OpGet(key)},
	})
	if err != nil {
		return err
	}
	at := answer.Header.Revision
	if !answer.Succeeded { // by another call, or the answer to an earlier attempt was lost
		marks := answer.Responses[0].GetResponseRange().Kvs
		if len(marks) == 0 || string(marks[0].Value) != p.mark().text() {
			return joinsTwice()
		}
		at = marks[0].ModRevision
	}
	return p.ChangeSeen(ctx, p.Host, func(s *notes.Seen) {
		if is.isForgotten() {
			s.Revision = 0 // it is of another past
		}
		s.Cluster, s.Boot, s.Restored, s.Revision = answer.Header.ClusterId, thisBoot(), is.restored.ID, max(s.Revision, at)
	})
}

// declare tells all hosts that etcd was restored, unless another host has done so.
func (p *pool) declare(ctx context.Context) (r restoration, err error) {
	granted, err := p.grant(ctx, p.Grace)
	if err != nil {
		return r, err
	}
	r = restoration{rand.Text(), p.Host, time.Now().UTC()}
	text, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	key := p.space.restoration()
	answer, err := p.commit(ctx, transaction{
		compare:   []clientv3.Cmp{isAbsent(key)},
		then:      []clientv3.Op{clientv3.OpPut(key, string(text), clientv3.WithLease(granted.ID)), clientv3.OpPut(p.space.past(), "")},
		otherwise: []clientv3.Op{clientv3.OpGet(key)},
	})
	if err != nil || answer.Succeeded {
		return r, err
	}
	return parseRestoration(answer.Responses[0].GetResponseRange().Kvs), nil
}

func parseRestoration(found []*mvccpb.KeyValue) (r restoration) {
	for _, kv := range found {
		if json.Unmarshal(kv.Value, &r) != nil || r.ID == "" {
			r.ID = "unknown"
		}
	}
	return r
}

// mustWait is the error of a call that needs a new address, or would. It is nil when etcd was not restored.
func (p *pool) mustWait(r restoration) error {
	if r.ID == "" {
		return nil
	}
	return plugin.CodeErrorf(types.ErrTryAgainLater, fmt.Sprintf("run `cnictl leases keep %s` on each host of the network until it says \"kept\" on all of them, then `etcdctl del %s`; otherwise the wait ends %v after it began",
		p.network, p.space.restoration(), p.Grace),
		"etcd was restored from an older snapshot or made anew: nobody gets an address of %s before all hosts have written back what they hold (host %s has noticed it at %s)",
		p.network, r.Host, r.Noticed.Format(time.RFC3339))
}

// notYet says that another attachment has in etcd what this host holds.
func notYet(lost map[plugin.Key][]string) error {
	var all []string
	for _, k := range slices.SortedFunc(maps.Keys(lost), func(a, b plugin.Key) int { return strings.Compare(a.String(), b.String()) }) {
		all = append(all, lost[k]...)
	}
	return plugin.CodeErrorf(types.ErrTryAgainLater, "run `cnictl leases keep` on that host first, which frees what it does not hold any more; if its container runs, end one of the two",
		"etcd was restored, and this host can't write back all that it holds: %s", strings.Join(all, ", "))
}

// freeForgotten frees what a restored etcd has of this host's attachments which have ended since the snapshot: the host has no note of them, and libcni no result.
func (p *pool) freeForgotten(ctx context.Context) error {
	answer, err := p.commit(ctx, transaction{then: []clientv3.Op{clientv3.OpGet(p.space.attachments(p.Host), clientv3.WithPrefix(), clientv3.WithKeysOnly())}})
	if err != nil {
		return err
	}
	done := map[plugin.Key]bool{}
	for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
		o, _, ok := p.space.parseHeld(p.Host, string(kv.Key))
		k := o.key(p.network)
		if !ok || done[k] || p.IsOpen(k) || !p.hasEnded(k) {
			continue
		}
		done[k] = true
		if err := p.freeUnknown(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// hasEnded reports whether libcni keeps results, has none of an attachment, and nothing of it is known to live.
func (p *pool) hasEnded(k plugin.Key) bool {
	_, err := cache.Read(p.request.Results, k)
	return errors.Is(err, fs.ErrNotExist) && cache.Exists(p.request.Results) &&
		presence.NewHost(presence.DefaultNotes).About(presence.Asked{Key: k, Results: p.request.Results}).State != presence.Alive
}

// freeUnknown frees what an attachment has of which nothing is noted.
func (p *pool) freeUnknown(ctx context.Context, k plugin.Key) error {
	lock, isOpen, err := p.Claim(ctx, k)
	if err != nil {
		return err
	}
	defer lock.Release()
	if isOpen {
		return nil // it is freed by another call
	}
	if _, known := p.ReadHeld(k); !known {
		err = p.freeAll(ctx, k)
	}
	return errors.Join(err, state.Remove(p.OpenFile(k)))
}
