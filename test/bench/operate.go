package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/cnibox/cnibox/test/netlab"
)

// verbs are what a runtime asks of an attachment, in order.
var verbs = []string{"ADD", "CHECK", "DEL"}

// operate makes one call of libcni. It must run in a Host.
func operate(exec invoke.Exec, verb string, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) (err error) {
	cni := libcni.NewCNIConfigWithCacheDir([]string{netlab.PluginDir}, netlab.CacheDir, exec)
	ctx := context.Background()
	switch verb {
	case "ADD":
		_, err = cni.AddNetworkList(ctx, list, rt)
	case "CHECK":
		err = cni.CheckNetworkList(ctx, list, rt)
	case "DEL":
		err = cni.DelNetworkList(ctx, list, rt)
	default:
		err = fmt.Errorf("no such verb: %q", verb)
	}
	return err
}

// plain runs plugins as libcni does by itself, but keeps what they print on standard error out of the way.
func plain() *invoke.DefaultExec {
	return &invoke.DefaultExec{RawExec: &invoke.RawExec{}, PluginDecoder: version.PluginDecoder{}}
}

// stopwatch is plain and notes what each plugin took. It is for one call of libcni, with nothing else under way.
type stopwatch struct {
	*invoke.DefaultExec
	took map[string]cost
}

func newStopwatch() *stopwatch {
	return &stopwatch{DefaultExec: plain(), took: map[string]cost{}}
}

func (s *stopwatch) ExecPlugin(ctx context.Context, plugin string, stdin []byte, environ []string) ([]byte, error) {
	before, start := childrenCPU(), time.Now()
	out, err := s.DefaultExec.ExecPlugin(ctx, plugin, stdin, environ)
	s.took[filepath.Base(plugin)] = cost{wall: time.Since(start), cpu: childrenCPU() - before}
	return out, err
}
