package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/ipam/etcdpool"
	"github.com/cnibox/cnibox/pkg/ipam/lease"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/request"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/plugins/ipam/etcd"
)

// options are the flags of the verbs.
type options struct {
	leases  string // the directory of host-local's leases
	results string // that of libcni's results
	isCopy  bool   // what is moved stays where it was, too
}

// verbs are what cnictl asks for. Each returns its report.
var verbs = map[string]func(context.Context, *plugin.Request, options) (any, error){
	etcdpool.List: func(ctx context.Context, r *plugin.Request, _ options) (any, error) { return etcd.Report(ctx, r) },
	etcdpool.Keep: func(ctx context.Context, r *plugin.Request, _ options) (any, error) { return etcd.Keep(ctx, r) },
	etcdpool.Import: func(ctx context.Context, r *plugin.Request, o options) (any, error) {
		return etcd.Import(ctx, r, o.leases, o.isCopy)
	},
	etcdpool.Export: func(ctx context.Context, r *plugin.Request, o options) (any, error) {
		return etcd.Export(ctx, r, o.leases, o.isCopy)
	},
}

// answer serves a verb, and returns the exit code. An error is printed as a plugin prints it.
func answer(verb func(context.Context, *plugin.Request, options) (any, error), args []string) int {
	flags, o := flag.NewFlagSet("cnibox-etcd", flag.ExitOnError), options{}
	flags.StringVar(&o.leases, "leases", lease.DefaultDir, "the directory of host-local's leases")
	flags.StringVar(&o.results, "results", "/var/lib/cni/results", "the directory of libcni's results")
	flags.BoolVar(&o.isCopy, "copy", false, "leave what is moved where it was, too, until it is moved once more")
	_ = flags.Parse(args)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r := &plugin.Request{Command: plugin.Status, Results: o.results}
	report, err := do(ctx, r, verb, o)
	if err != nil {
		_, _ = os.Stdout.Write(result.PrintError(plugin.AsError(err), plugin.CurrentVersion))
		return 1
	}
	if json.NewEncoder(os.Stdout).Encode(report) != nil {
		return 1
	}
	return 0
}

func do(ctx context.Context, r *plugin.Request, verb func(context.Context, *plugin.Request, options) (any, error), o options) (any, error) {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	config, err := conf.Parse(text)
	if err != nil {
		return nil, err
	}
	if err := request.Read(r, config, row); err != nil {
		return nil, err
	}
	return verb(ctx, r, o)
}
