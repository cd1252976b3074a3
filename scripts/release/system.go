package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
)

// place is where a kind of system wants files to be.
type place struct {
	plugins    []string // directories of plugins, of which units use the first
	zsh        string   // the directory of completion for zsh
	licences   string   // the directory of licence texts
	packedDocs bool     // documentation is compressed
}

var (
	ofDebian    = place{plugins: []string{"usr/lib/cni"}, zsh: "usr/share/zsh/vendor-completions", licences: "usr/share/doc/cnibox", packedDocs: true}
	ofFedora    = place{plugins: []string{"usr/libexec/cni"}, zsh: "usr/share/zsh/site-functions", licences: "usr/share/licenses/cnibox"}
	ofArchLinux = place{plugins: []string{"usr/lib/cni"}, zsh: "usr/share/zsh/site-functions", licences: "usr/share/licenses/cnibox"}
	ofAny       = place{plugins: []string{"usr/lib/cni", "usr/libexec/cni"}, zsh: "usr/share/zsh/site-functions", licences: "usr/share/licenses/cnibox"}
)

// system returns what a system has of cnibox: cnictl, the plugins, units and other settings, and what is to be read.
func system(r Release, arch string, p place) ([]entry, error) {
	built, errBuilt := files(filepath.Join(r.Tree, "linux-"+arch), programs...)
	settings, errSettings := settings(r, "/"+p.plugins[0]+"/cnibox")
	share, errShare := files(filepath.Join(r.Tree, "share"), ".")
	if err := cmp.Or(errBuilt, errSettings, errShare); err != nil {
		return nil, err
	}
	cnictl := built[slices.IndexFunc(built, func(e entry) bool { return e.name == "cnictl" })]
	cnictl.name = "usr/bin/cnictl"
	list := append([]entry{cnictl}, settings...)
	for _, dir := range p.plugins {
		plugins, err := pluginsIn(r, arch, dir)
		if err != nil {
			return nil, err
		}
		list = append(list, plugins...)
	}
	for _, e := range share {
		e.name = p.shared(e.name)
		if strings.HasPrefix(e.name, "usr/share/man/") || p.packedDocs && path.Base(e.name) == "changelog" {
			e.name, e.content = e.name+".gz", packed(e.content)
		}
		list = append(list, e)
	}
	return list, nil
}

// shared returns where a system has a file of the tree's share.
func (p place) shared(name string) string {
	folder, rest, _ := strings.Cut(name, "/")
	switch {
	case name == "completion/cnictl.bash":
		return "usr/share/bash-completion/completions/cnictl"
	case name == "completion/_cnictl":
		return p.zsh + "/_cnictl"
	case name == "completion/cnictl.fish":
		return "usr/share/fish/vendor_completions.d/cnictl.fish"
	case name == "doc/CHANGELOG.md" && p.packedDocs:
		return "usr/share/doc/cnibox/changelog"
	case folder == "doc" && path.Ext(rest) == ".md":
		return "usr/share/doc/cnibox/" + rest
	case folder == "doc":
		return p.licences + "/" + rest
	}
	return "usr/share/" + name
}

// pluginsIn are all plugins in a directory, with the one that is a program of its own. Nothing leads out of the directory.
func pluginsIn(r Release, arch, dir string) ([]entry, error) {
	tree := filepath.Join(r.Tree, "linux-"+arch)
	list, err := pluginFiles(r, arch, false)
	etcd, errEtcd := os.ReadFile(filepath.Join(tree, pluginfile.EtcdBinary))
	stubs, errStubs := makeStub(tree, pluginfile.EtcdBinary)
	if err := cmp.Or(err, errEtcd, errStubs); err != nil {
		return nil, err
	}
	list = append(list, entry{name: pluginfile.EtcdBinary, mode: 0o755, content: etcd}, entry{name: shared.Plugin, mode: 0o755, content: stubs})
	for i := range list {
		list[i].name = dir + "/" + list[i].name
	}
	return list, nil
}

// settings are units, which run a cnibox, and what is said to other daemons, of dist.
func settings(r Release, program string) (list []entry, err error) {
	for _, folder := range [][2]string{
		{"systemd", "usr/lib/systemd/system"}, {"network", "usr/lib/systemd/network"},
		{"NetworkManager", "usr/lib/NetworkManager/conf.d"}, {"tmpfiles", "usr/lib/tmpfiles.d"},
	} {
		found, err := files(filepath.Join(r.Source, "dist", folder[0]), ".")
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			e.name = folder[1] + "/" + e.name
			e.content = bytes.ReplaceAll(e.content, []byte("ExecStart=/opt/cni/bin/dhcp daemon"), []byte("ExecStart="+program+" dhcp daemon"))
			list = append(list, e)
		}
	}
	return list, nil
}

// packed returns what gzip makes of a text, without time and name.
func packed(text []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // fails for a wrong level only
	_, err := w.Write(text)
	if err = cmp.Or(err, w.Close()); err != nil {
		panic(fmt.Sprintf("compress in memory: %v", err))
	}
	return out.Bytes()
}
