package etcdpool

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/delegate"
)

// Program is what the file is called that is run.
const Program = "etcd"

// Network is a network whose addresses are in etcd.
type Network struct {
	Name   string
	config string // what the program is given
	dirs   string // in which it is looked for, separated by ':'
}

// NetworkOf returns the network with a name and an object ipam.
func NetworkOf(name string, ipam *conf.Object, dirs []string) Network {
	config := conf.New()
	config.Set("cniVersion", plugin.CurrentVersion)
	config.Set("name", name)
	config.Set("type", Program)
	config.Set("ipam", ipam)
	return Network{name, string(config.JSON()), strings.Join(dirs, ":")}
}

// Request returns one of the plugin for an attachment of the network.
func (n Network) Request(command plugin.Command, k plugin.Key) (*plugin.Request, error) {
	config, err := conf.Parse([]byte(n.config))
	return &plugin.Request{Command: command, Key: k, Path: filepath.SplitList(n.dirs), Config: config, Version: plugin.CurrentVersion}, err
}

// List says what there is in etcd.
func (n Network) List(ctx context.Context) (*Report, error) {
	r := &Report{}
	return r, n.ask(ctx, r, List)
}

// Keep renews this host's lease, and frees what could not be freed before.
func (n Network) Keep(ctx context.Context) (*Report, error) {
	r := &Report{}
	return r, n.ask(ctx, r, Keep)
}

// Move runs Import or Export, with the directory of host-local's leases. With isCopy both places have them in the end.
func (n Network) Move(ctx context.Context, verb, leases string, isCopy bool) (*Moved, error) {
	m, args := &Moved{}, []string{"-leases", leases}
	if isCopy {
		args = append(args, "-copy")
	}
	return m, n.ask(ctx, m, verb, args...)
}

func (n Network) ask(ctx context.Context, answer any, verb string, args ...string) error {
	path, err := find(filepath.SplitList(n.dirs))
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CNI_COMMAND=") }) // with which it would be a plugin
	printed, _, err := delegate.Execute(ctx, path, own, []byte(n.config), append([]string{verb}, args...)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(printed, answer); err != nil {
		return plugin.Errorf("install cnibox and cnibox-etcd of one version", "%s %s: its answer can't be read: %w", path, verb, err)
	}
	return nil
}

func find(dirs []string) (string, error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, Program)
		if file, err := os.Stat(path); err == nil && file.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", plugin.Errorf("`cnictl install` puts it there if cnibox-etcd lies beside cnibox", "the plugin %s is not in %s", Program, strings.Join(dirs, ":"))
}
