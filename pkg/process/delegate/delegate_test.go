package delegate

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/request"
)

// inside is a plugin of this process that keeps the request.
type inside struct{ seen *plugin.Request }

func (i *inside) verb(r *plugin.Request) error { i.seen = r; return nil }

func (i *inside) Add(_ context.Context, r *plugin.Request) (*types100.Result, error) {
	return &types100.Result{}, i.verb(r)
}
func (i *inside) Del(_ context.Context, r *plugin.Request) error                    { return i.verb(r) }
func (i *inside) Mend(_ context.Context, r *plugin.Request, _ *plugin.Mender) error { return i.verb(r) }
func (i *inside) Status(_ context.Context, r *plugin.Request) error                 { return i.verb(r) }
func (i *inside) GC(_ context.Context, r *plugin.Request) error                     { return i.verb(r) }

const config = `{"cniVersion": "1.1.0", "name": "net", "type": "bridge", "mtu": "wrong", "ipam": {"type": "host-local"}}`

func newRequest(t *testing.T, command plugin.Command, path ...string) *plugin.Request {
	t.Helper()
	o, err := conf.Parse([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return &plugin.Request{
		Command: command, Key: plugin.Key{Network: "net", ContainerID: "c0ffee", IfName: "eth0"}, Netns: "/run/netns/web",
		Args: "IgnoreUnknown=1", Path: path, Version: "1.1.0", Config: o, HasValid: true,
		Plugins: plugin.Table{
			{Name: "host-local", Kind: plugin.IPAM, Plugin: &inside{}, AddressesUniqueToNode: true},
			{Name: "dhcp", Kind: plugin.IPAM, Plugin: &inside{}, NeedsLink: true, ReleasesThroughLink: true},
		},
	}
}

// place puts the test's own binary into dir under a name.
func place(t *testing.T, dir, name string, how func(from, to string) error) {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := how(own, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// linkTwice makes a symbolic link to a symbolic link.
func linkTwice(from, to string) error {
	return errors.Join(os.Symlink(from, to+".box"), os.Symlink(filepath.Base(to)+".box", to))
}

func TestFindTellsOurselvesFromOthers(t *testing.T) {
	tests := []struct {
		name     string
		plugin   string
		how      func(from, to string) error
		external bool
	}{
		{"symbolic link", "host-local", os.Symlink, false},
		{"link to a link", "host-local", linkTwice, false},
		{"hard link", "host-local", os.Link, false},
		{"another name by symbolic link", "buildkit-cni-host-local", os.Symlink, false},
		{"another name by hard link", "cnv-dhcp", os.Link, false},
		{"copy", "host-local", copyFile, true},
		{"another name by copy", "buildkit-cni-host-local", copyFile, true},
		{"another program", "host-local", func(_, to string) error { return os.WriteFile(to, []byte("#!/bin/sh\n"), 0o755) }, true},
		{"our binary, but no plugin of ours", "calico-ipam", os.Symlink, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			place(t, dir, tt.plugin, tt.how)
			d, err := Find(newRequest(t, plugin.Add, dir), tt.plugin)
			if err != nil {
				t.Fatal(err)
			}
			if _, in := d.Plugin.(*inside); in == tt.external || d.External != tt.external {
				t.Errorf("found %T", d.Plugin)
			}
		})
	}
}

func TestFindTakesTheFirst(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(first, "host-local"), 0o755); err != nil { // no file
		t.Fatal(err)
	}
	if err := os.Symlink("gone", filepath.Join(first, "dhcp")); err != nil { // leads nowhere
		t.Fatal(err)
	}
	for _, name := range []string{"host-local", "dhcp"} {
		place(t, second, name, os.Symlink)
		third := t.TempDir()
		place(t, third, name, copyFile)
		d, err := Find(newRequest(t, plugin.Add, "/none", first, second, third), name)
		if err != nil || d.External {
			t.Errorf("%s: %+v, %v; want the one in the second directory", name, d, err)
		}
	}
}

func TestFindRefuses(t *testing.T) {
	dir := t.TempDir()
	tests := []struct{ name, plugin, want string }{
		{"no name", "", `"" is no plugin's name`},
		{"a path", "../host-local", `"../host-local" is no plugin's name`},
		{"missing", "host-local", "plugin host-local is not in CNI_PATH (" + dir + ":/none)"},
		{"the directory itself", ".", "plugin . is not in CNI_PATH"},
		{"zero byte", "a\x00b", "is not in CNI_PATH"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := Find(newRequest(t, plugin.Add, dir, "/none"), tt.plugin)
			var e *types.Error
			if d != nil || !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig || e.Details == "" || !strings.Contains(e.Msg, tt.want) {
				t.Errorf("Find = %v, %#v; want code 7 and %s", d, err, tt.want)
			}
		})
	}
}

func TestWhatIsKnownOfIPAM(t *testing.T) {
	ours, others := t.TempDir(), t.TempDir()
	for _, name := range []string{"host-local", "dhcp", "x-host-local", "x-dhcp", "other"} {
		place(t, others, name, copyFile)
		place(t, ours, name, os.Symlink)
	}
	tests := []struct {
		name, dir          string
		needs, gives, once bool
	}{
		{"host-local", ours, false, false, true},
		{"host-local", others, true, false, true},
		{"dhcp", ours, true, true, false},
		{"dhcp", others, true, true, false},
		{"x-host-local", ours, false, false, true},
		{"x-host-local", others, true, false, true},
		{"x-dhcp", ours, true, true, false},
		{"x-dhcp", others, true, true, false},
		{"other", others, true, false, false},
	}
	for _, tt := range tests {
		d, err := Find(newRequest(t, plugin.Add, tt.dir), tt.name)
		if err != nil {
			t.Fatal(err)
		}
		if d.NeedsLink != tt.needs || d.ReleasesThroughLink != tt.gives || d.AddressesUniqueToNode != tt.once {
			t.Errorf("%s: NeedsLink %v, ReleasesThroughLink %v, AddressesUniqueToNode %v; want %v, %v, %v",
				tt.name, d.NeedsLink, d.ReleasesThroughLink, d.AddressesUniqueToNode, tt.needs, tt.gives, tt.once)
		}
	}
}

func TestRequestOfADelegate(t *testing.T) {
	dir := t.TempDir()
	place(t, dir, "host-local", os.Symlink)
	r := newRequest(t, plugin.Add, dir)
	d, err := Find(r, "host-local")
	if err != nil {
		t.Fatal(err)
	}
	in := d.Plugin.(*inside)
	strict := func() bool {
		c := in.seen.Config
		c.Int("mtu", new(int))
		return c.Err() != nil
	}

	if _, err := d.Add(context.Background(), r); err != nil || in.seen.Command != plugin.Add || in.seen.Key != r.Key {
		t.Errorf("ADD: %v, request %+v", err, in.seen)
	}
	if err := d.Del(context.Background(), r); err != nil || in.seen.Command != plugin.Del || strict() {
		t.Errorf("DEL of an ADD that fails: %v, request %+v; want a lenient DEL", err, in.seen)
	}
	if r.Command != plugin.Add || r.Config.Err() != nil {
		t.Error("the caller's request was changed")
	}
	if err := request.Check(context.Background(), d.Plugin, newRequest(t, plugin.Check, dir)); err != nil || in.seen.Command != plugin.Check || !strict() {
		t.Errorf("CHECK: %v, request %+v; want a strict one", err, in.seen)
	}
	status := newRequest(t, plugin.Status, dir)
	if err := d.Status(context.Background(), status); err != nil || in.seen != status {
		t.Errorf("STATUS: %v, request %+v", err, in.seen)
	}
}
