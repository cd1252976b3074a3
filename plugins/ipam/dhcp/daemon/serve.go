package daemon

import (
	"context"
	"fmt"
	"log"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/plugins/ipam/dhcp"
)

// daemon is the running program.
type daemon struct {
	*settings
	dir    dhcp.Dir
	mu     sync.Mutex
	leases leases // guarded by mu
}

type leases map[plugin.Key]*lease

const (
	requestTime  = 10 * time.Second // in which a request must be there
	handOverTime = 5 * time.Second  // in which the daemon before this one must have ended
	stopTime     = 5 * time.Second  // in which calls that were stopped must have ended
	atOnce       = 16               // leases that are taken up at the same time
)

// lock makes this daemon the only one of its socket and directory.
func (d *daemon) lock(ctx context.Context) (*state.Lock, error) {
	if err := os.MkdirAll(string(d.dir), 0o700); err != nil {
		return nil, err
	}
	return state.Acquire(ctx, filepath.Join(string(d.dir), "lock"), 0o600, handOverTime)
}

// takeOver reads the leases that a daemon before this one left, and takes them up in the background.
func (d *daemon) takeOver(ctx context.Context) error {
	unfinished, _ := filepath.Glob(filepath.Join(string(d.dir), ".*")) // of a daemon that was killed while it wrote
	for _, path := range unfinished {
		_ = os.Remove(path)
	}
	files, err := d.dir.Read()
	for _, f := range files {
		var l *lease
		err := f.Err
		if err == nil {
			l, err = d.restore(f.Request, f.Document)
		}
		if err != nil {
			log.Printf("the lease in %s can't be taken up: %v", f.Path, err)
			continue
		}
		l.life, l.stop = context.WithCancel(ctx)
		d.leases[l.Key] = l
	}
	log.Printf("%d leases are taken up", len(d.leases))
	slots := make(chan struct{}, atOnce)
	for _, l := range maps.Clone(d.leases) {
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			d.takeUp(l)
		}()
	}
	return err
}

// serve answers requests until ctx ends.
func (d *daemon) serve(ctx context.Context, listener net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	var calls sync.WaitGroup
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			log.Printf("accept: %v", err)
			time.Sleep(time.Second) // such as EMFILE, which passes
			continue
		}
		calls.Go(func() { _ = d.handle(ctx, conn) })
	}
	ended := make(chan struct{})
	go func() { calls.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(stopTime):
	}
	return nil
}

// handle answers one request. If the plugin is gone by then a lease that was got for it is released.
func (d *daemon) handle(ctx context.Context, conn net.Conn) (err error) {
	defer conn.Close()
	defer caught(&err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = conn.SetReadDeadline(time.Now().Add(requestTime))
	o, err := dhcp.ReadLine(conn)
	if err != nil {
		return dhcp.WriteLine(conn, dhcp.Failure(fmt.Errorf("read the request: %w", err)))
	}
	_ = conn.SetReadDeadline(time.Time{})
	go func() {
		_, _ = conn.Read(make([]byte, 1)) // the plugin sends no more: it ends
		cancel()
	}()
	q, err := dhcp.ParseRequest(o)
	answer, isNew := conf.New(), false
	if err == nil {
		var leased *types100.Result
		if leased, isNew, err = d.answer(ctx, q); leased != nil {
			answer.Set("result", result.FormOf(leased, plugin.CurrentVersion))
		}
	}
	if err != nil {
		log.Printf("%s %s: %v", q.Command, q.Key, err)
		answer = dhcp.Failure(err)
	}
	if isLost := ctx.Err() != nil || dhcp.WriteLine(conn, answer) != nil; isLost && isNew {
		return d.release(q.Key)
	}
	return nil
}

// caught turns a panic into an error: none ends the daemon, which keeps the leases of the whole node. Callers defer it.
func caught(err *error) {
	if p := recover(); p != nil {
		log.Printf("bug: %v\n%s", p, debug.Stack())
		*err = plugin.Errorf("please report it, with what the daemon logs", "bug: %v", p)
	}
}

// answer serves a request. The lease can be new, or from an earlier call.
func (d *daemon) answer(ctx context.Context, q *dhcp.Request) (leased *types100.Result, isNew bool, err error) {
	defer caught(&err)
	switch q.Command {
	case plugin.Add:
		return d.add(ctx, q)
	case plugin.Check:
		leased, err = d.check(q)
	case plugin.Del:
		err = d.release(q.Key)
	case plugin.Status:
		err = netns.CheckEntry()
	default:
		err = plugin.Errorf("see docs/plugins/dhcp.md", "unknown command %q", q.Command)
	}
	return leased, false, err
}

// netnsPath returns where the daemon finds a namespace.
func (d *daemon) netnsPath(path string) string {
	return strings.TrimSuffix(d.prefix, "/") + path
}
