package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/request"
)

// lab is a table of plugins that keep what they are asked, and the directory that CNI_PATH leads to them by.
type lab struct {
	dir   string
	table plugin.Table
	calls []call
	does  map[string]func(ctx context.Context, r *plugin.Request) (*types100.Result, error) // by "VERB name"
}

// call is one call of a plugin.
type call struct {
	what  string // "VERB name"
	stdin map[string]any
}

// newLab has the plugins called names, and the chain.
func newLab(t *testing.T, names ...string) *lab {
	t.Helper()
	l := &lab{dir: t.TempDir(), does: map[string]func(context.Context, *plugin.Request) (*types100.Result, error){}}
	l.table = plugin.Table{{Name: ownType, Kind: plugin.Meta, Plugin: Plugin{}}}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		l.table = append(l.table, plugin.Descriptor{Name: name, Plugin: fake{l, name}})
	}
	for _, row := range l.table {
		if err := os.Symlink(own, filepath.Join(l.dir, row.Name)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// fails has a plugin fail in a verb ("VERB name").
func (l *lab) fails(what string, err error) {
	l.does[what] = func(context.Context, *plugin.Request) (*types100.Result, error) { return nil, err }
}

// names are the calls there were, in order.
func (l *lab) names() string {
	var list []string
	for _, c := range l.calls {
		list = append(list, c.what)
	}
	return strings.Join(list, ", ")
}

// request is a call by a runtime.
func (l *lab) request(command plugin.Command, config string) (*plugin.Request, error) {
	r := &plugin.Request{Command: command, Path: []string{l.dir}, Plugins: l.table, Args: "IgnoreUnknown=1;K8S_POD_NAME=web"}
	if command == plugin.Add || command == plugin.Del || command == plugin.Check {
		r.Key = plugin.Key{ContainerID: "c0ffee", IfName: "eth0"}
		r.Netns = "/run/netns/web"
	}
	o, err := conf.Parse([]byte(config))
	if err != nil {
		return nil, err
	}
	return r, request.Read(r, o, plugin.Descriptor{})
}

// run calls the chain.
func (l *lab) run(t *testing.T, ctx context.Context, command plugin.Command, config string) (*types100.Result, error) {
	t.Helper()
	r, err := l.request(command, config)
	if err != nil {
		t.Fatal(err)
	}
	return request.Serve(ctx, Plugin{}, r)
}

// fake is a plugin of a lab.
type fake struct {
	lab  *lab
	name string
}

func (f fake) Add(ctx context.Context, r *plugin.Request) (*types100.Result, error) {
	return f.verb(ctx, plugin.Add, r)
}
func (f fake) Del(ctx context.Context, r *plugin.Request) error {
	_, err := f.verb(ctx, plugin.Del, r)
	return err
}
func (f fake) Mend(ctx context.Context, r *plugin.Request, _ *plugin.Mender) error {
	_, err := f.verb(ctx, plugin.Check, r)
	return err
}
func (f fake) Status(ctx context.Context, r *plugin.Request) error {
	_, err := f.verb(ctx, plugin.Status, r)
	return err
}
func (f fake) GC(ctx context.Context, r *plugin.Request) error {
	_, err := f.verb(ctx, plugin.GC, r)
	return err
}

// verb keeps the call. Without other orders an ADD adds an interface called like the plugin.
func (f fake) verb(ctx context.Context, command plugin.Command, r *plugin.Request) (*types100.Result, error) {
	what := string(command) + " " + f.name
	var stdin map[string]any
	if err := json.Unmarshal(r.Config.JSON(), &stdin); err != nil {
		return nil, err
	}
	f.lab.calls = append(f.lab.calls, call{what, stdin})
	if r.Command != command {
		return nil, errors.New("the request is for " + string(r.Command))
	}
	if do := f.lab.does[what]; do != nil {
		return do(ctx, r)
	}
	result := &types100.Result{}
	if r.PrevResult != nil {
		result = r.PrevResult
	}
	result.Interfaces = append(result.Interfaces, &types100.Interface{Name: f.name, Mtu: 1400})
	return result, nil
}

// config is a chain's configuration, with more keys and a list of plugins.
func config(version, keys, list string) string {
	return fmt.Sprintf(`{"cniVersion": %q, "name": "net", "type": "chain", %s "plugins": %s}`, version, keys, list)
}
