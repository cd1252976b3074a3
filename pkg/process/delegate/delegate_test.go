package delegate

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// inside is a plugin of this process, which keeps the request of a DEL.
type inside struct {
	plugin.Plugin
	seen *plugin.Request
}

func (i *inside) Del(_ context.Context, r *plugin.Request) error { i.seen = r; return nil }

func newRequest(t *testing.T, command plugin.Command, path ...string) *plugin.Request {
	t.Helper()
	o, err := conf.Parse([]byte(`{"cniVersion": "1.1.0", "name": "net", "type": "bridge", "ipam": {"type": "host-local"}}`))
	if err != nil {
		t.Fatal(err)
	}
	return &plugin.Request{
		Command: command, Key: plugin.Key{Network: "net", ContainerID: "c0ffee", IfName: "eth0"}, Netns: "/run/netns/web",
		Path: path, Version: "1.1.0", Config: o, HasValid: true,
		Plugins: plugin.Table{
			{Name: "host-local", Kind: plugin.IPAM, Plugin: &inside{}, AddressesUniqueToNode: true},
			{Name: "dhcp", Kind: plugin.IPAM, Plugin: &inside{}, NeedsLink: true, ReleasesThroughLink: true},
		},
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

// TestFind: what is this very binary is called in this process, and anything else may be an older one that needs the link.
func TestFind(t *testing.T) {
	script := func(_, to string) error { return os.WriteFile(to, []byte("#!/bin/sh\n"), 0o755) }
	tests := []struct {
		name                     string
		plugin                   string
		how                      func(from, to string) error
		external                 bool
		needs, releases, uniques bool
	}{
		{"symbolic link", "host-local", os.Symlink, false, false, false, true},
		{"link to a link", "host-local", linkTwice, false, false, false, true},
		{"hard link", "host-local", os.Link, false, false, false, true},
		{"copy", "host-local", copyFile, true, true, false, true},
		{"another program", "host-local", script, true, true, false, true},
		{"dhcp", "dhcp", os.Symlink, false, true, true, false},
		{"dhcp by copy", "dhcp", copyFile, true, true, true, false},
		{"another name by symbolic link", "buildkit-cni-host-local", os.Symlink, false, false, false, true},
		{"another name by hard link", "cnv-dhcp", os.Link, false, true, true, false},
		{"another name by copy", "buildkit-cni-host-local", copyFile, true, true, false, true},
		{"our binary, but no plugin of ours", "calico-ipam", os.Symlink, true, true, false, false},
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := tt.how(own, filepath.Join(dir, tt.plugin)); err != nil {
				t.Fatal(err)
			}
			d, err := Find(newRequest(t, plugin.Add, dir), tt.plugin)
			if err != nil {
				t.Fatal(err)
			}
			if _, in := d.Plugin.(*inside); in == tt.external || d.External != tt.external {
				t.Errorf("found %T", d.Plugin)
			}
			if d.NeedsLink != tt.needs || d.ReleasesThroughLink != tt.releases || d.AddressesUniqueToNode != tt.uniques {
				t.Errorf("NeedsLink %v, ReleasesThroughLink %v, AddressesUniqueToNode %v", d.NeedsLink, d.ReleasesThroughLink, d.AddressesUniqueToNode)
			}
		})
	}
}

// An ADD that fails gives back what it has by a DEL, which takes its configuration as it is. The caller's request stays an ADD.
func TestDelOfAnADD(t *testing.T) {
	r, in := newRequest(t, plugin.Add), &inside{}
	if err := (&Delegate{Plugin: in}).Del(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	in.seen.Config.Int("name", new(int))
	if err := in.seen.Config.Err(); err != nil || in.seen.Command != plugin.Del || in.seen.Key != r.Key || r.Command != plugin.Add {
		t.Errorf("it gets %+v, error %v", in.seen, err)
	}
}
