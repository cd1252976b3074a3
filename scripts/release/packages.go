package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk"
	_ "github.com/goreleaser/nfpm/v2/arch"
	_ "github.com/goreleaser/nfpm/v2/deb"
	contents "github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"

	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/process/box"
)

const maintainer = "The cnibox maintainers <cnibox@users.noreply.github.com>"

// kind is a kind of packages.
type kind struct {
	format    string // nfpm's
	place     place
	reference string // what the distributions call the package of the reference plugins
	release   string // what the version ends in
}

var kinds = []kind{
	{"deb", ofDebian, "containernetworking-plugins", "-1"},
	{"rpm", ofFedora, "containernetworking-plugins", "-1"},
	{"apk", ofFedora, "cni-plugins", "-r1"},
	{"archlinux", ofArchLinux, "cni-plugins", "-1"},
}

// packages makes for each architecture and kind of system four packages: cnibox has the plugins, and cnibox-opt has them in /opt/cni/bin, cnibox-etcd
// the plugin that is a program of its own, and cnictl the operator's tool.
func packages(r Release) error {
	for _, arch := range r.Arches {
		for _, k := range kinds {
			dir, err := os.MkdirTemp("", "cnibox-package-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			if err := k.write(r, arch, dir); err != nil {
				return fmt.Errorf("%s for %s: %w", k.format, arch, err)
			}
		}
	}
	return nil
}

func (k kind) write(r Release, arch, dir string) error {
	all, err := system(r, arch, k.place)
	if err != nil {
		return err
	}
	opt, err := pluginFiles(r, arch, false)
	if err != nil {
		return err
	}
	for i := range opt {
		opt[i].name = "opt/cni/bin/" + opt[i].name
	}
	// What depends on the package of the reference plugins is content with this one, which takes its place.
	cnibox := packageInfo(r, arch, k.format, "cnibox", `CNI plugins in one binary
All plugins that connect the containers of a node to its networks: bridge,
host-local, portmap, firewall and the others of the reference package, under
the same names and with the same configuration. podman, buildah, CRI-O and
nerdctl find them.`)
	cnibox.Provides = []string{k.is(k.reference, replaced()), k.is("container-network-stack", "1")}
	k.takePlace(cnibox, k.reference)
	cnibox.Suggests = []string{"cnictl", "iptables"}
	cnictl := packageInfo(r, arch, k.format, "cnictl", `Shows, checks and repairs the networks of containers
The operator's tool of cnibox: which container has which address and port, what
is wrong on a node, and how it is put right. It attaches containers by hand,
captures their packets, and runs the agent.`)
	etcd := packageInfo(r, arch, k.format, "cnibox-etcd", `CNI plugin that shares addresses between hosts by etcd
The IPAM plugin etcd of cnibox, which is a program of its own.`)
	etcd.Depends = []string{k.is("cnibox", version(r)+k.release)}
	// A pod may see that directory alone.
	inOpt := packageInfo(r, arch, k.format, "cnibox-opt", `CNI plugins in /opt/cni/bin
The plugins of cnibox in the directory in which containerd and the kubelet look
for them, if they are not configured otherwise.`)
	inOpt.Depends = etcd.Depends
	inOpt.Provides = []string{k.is("kubernetes-cni", replaced())}
	k.takePlace(inOpt, "kubernetes-cni")
	return cmp.Or(
		addScripts(cnibox, r, dir, all), writePackage(r, cnibox, packageOf(cnibox.Name, all), k.format, dir),
		addScripts(cnictl, r, dir, all), writePackage(r, cnictl, packageOf(cnictl.Name, all), k.format, dir),
		writePackage(r, etcd, packageOf(etcd.Name, all), k.format, dir),
		writePackage(r, inOpt, append(opt, packageOf(inOpt.Name, all)...), k.format, dir),
	)
}

// packageOf returns a package's part of what a system has. Each has the licences of what is linked into it.
func packageOf(name string, all []entry) (list []entry) {
	for _, e := range all {
		isLicence := path.Base(e.name) == "LICENSE" || path.Base(e.name) == noticesFile
		switch {
		case ownerOf(e.name) == name:
			list = append(list, e)
		case isLicence:
			e.name = path.Join(path.Dir(path.Dir(e.name)), name, path.Base(e.name))
			list = append(list, e)
		}
	}
	return list
}

// ownerOf returns the package that has a file.
func ownerOf(file string) string {
	base := path.Base(file)
	isUnit, isOfDHCP := strings.HasPrefix(file, "usr/lib/systemd/system/"), strings.HasPrefix(base, "cnibox-dhcp.")
	switch {
	case strings.HasSuffix(path.Dir(file), "/cni") && (base == pluginfile.EtcdBinary || base == shared.Plugin):
		return "cnibox-etcd"
	case strings.Contains(base, "cnictl"), isUnit && !isOfDHCP:
		return "cnictl"
	}
	return "cnibox"
}

// takePlace has a package stand in the place of another one. Debian's tools remove that one then; rpm and pacman would do so for everybody who only
// upgrades, if the package said that it replaces the other.
func (k kind) takePlace(info *nfpm.Info, other string) {
	info.Conflicts = []string{other}
	if k.format == "deb" {
		info.Replaces = info.Conflicts
	}
}

// replaced returns the version of the reference plugins that cnibox stands for.
func replaced() string {
	version, _, _ := strings.Cut(box.PluginsVersion, "+")
	return version
}

// version returns the release's as both kinds of packages have it: 1.0.0~rc.1 comes before 1.0.0.
func version(r Release) string {
	return strings.Replace(strings.TrimPrefix(r.Version, "v"), "-", "~", 1)
}

// is names a package in this version and no other.
func (k kind) is(name, version string) string {
	switch k.format {
	case "deb":
		return fmt.Sprintf("%s (= %s)", name, version)
	case "rpm":
		return fmt.Sprintf("%s = %s", name, version)
	}
	return name + "=" + version
}

func packageInfo(r Release, arch, format, name, text string) *nfpm.Info {
	info := &nfpm.Info{
		Name: name, Arch: cmp.Or(map[string]string{"arm": "arm7"}[arch], arch), Version: r.Version, Release: "1",
		Section: "net", Priority: "optional", Maintainer: maintainer, Vendor: "cnibox", Homepage: "https://github.com/cnibox/cnibox",
		Description: text, MTime: r.Time,
		Overridables: nfpm.Overridables{
			Deb: nfpm.Deb{Compression: "xz"},
			RPM: nfpm.RPM{Compression: "zstd", BuildHost: "localhost"},
		},
	}
	if format != "deb" { // Debian has it in the file copyright
		info.License = "Apache-2.0"
	}
	return info
}

// debianDocs are what Debian wants to be in each package: its changelog and licence, and why lintian is not followed.
func debianDocs(r Release, info *nfpm.Info) (list []entry) {
	doc := "usr/share/doc/" + info.Name + "/"
	change := fmt.Sprintf("%s (%s-1) stable; urgency=medium\n\n  * %s: what is new is in changelog.gz of cnibox.\n\n -- %s  %s\n",
		info.Name, version(r), r.Version, maintainer, r.Time.Format(time.RFC1123Z))
	list = append(list,
		entry{name: doc + "changelog.Debian.gz", mode: 0o644, content: packed([]byte(change))},
		entry{name: doc + "copyright", mode: 0o644, content: []byte(copyright)})
	if text, err := os.ReadFile(filepath.Join(r.Source, "dist/packages", info.Name+".lintian-overrides")); err == nil {
		list = append(list, entry{name: "usr/share/lintian/overrides/" + info.Name, mode: 0o644, content: text})
	}
	return list
}

const copyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: cnibox
Source: https://github.com/cnibox/cnibox
Comment: The licences of the modules that are linked are in the directory of this file in the package cnibox.

Files: *
Copyright: 2026 The cnibox authors
License: Apache-2.0

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
`

// addScripts has a package run what is in dist/packages. Their only parameter is the list of the package's units.
func addScripts(info *nfpm.Info, r Release, dir string, all []entry) error {
	var names []string
	for _, e := range packageOf(info.Name, all) {
		if strings.HasPrefix(e.name, "usr/lib/systemd/system/") {
			names = append(names, path.Base(e.name))
		}
	}
	for name, at := range map[string]*string{"postinst": &info.Scripts.PostInstall, "prerm": &info.Scripts.PreRemove} {
		text, err := os.ReadFile(filepath.Join(r.Source, "dist/packages", name))
		if err != nil {
			return err
		}
		*at = filepath.Join(dir, info.Name+"."+name)
		text = bytes.ReplaceAll(text, []byte("@UNITS@"), []byte(strings.Join(names, " ")))
		if err := os.WriteFile(*at, text, 0o755); err != nil {
			return err
		}
		if err := os.Chtimes(*at, r.Time, r.Time); err != nil { // which an apk has, too
			return err
		}
	}
	return nil
}

// ownDirs are directories that may be of nobody else: rpm leaves them when a package goes, if it is not told.
var ownDirs = []string{"opt/cni", "opt/cni/bin", "usr/lib/cni", "usr/libexec/cni", "usr/lib/NetworkManager", "usr/lib/NetworkManager/conf.d",
	"usr/share/doc/cnibox", "usr/share/licenses/cnibox", "usr/share/licenses/cnictl", "usr/share/licenses/cnibox-etcd", "usr/share/licenses/cnibox-opt"}

// writePackage writes a package under the name that its kind of system gives it. nfpm takes what is in it from files.
func writePackage(r Release, info *nfpm.Info, list []entry, format, dir string) error {
	if format == "deb" {
		list = append(list, debianDocs(r, info)...)
	}
	for i, e := range list {
		content := &contents.Content{Destination: "/" + e.name, Source: e.link, Type: contents.TypeSymlink, FileInfo: &contents.ContentFileInfo{Mode: os.FileMode(e.mode)}}
		if e.link == "" {
			content.Source, content.Type = filepath.Join(dir, fmt.Sprint(info.Name, i)), contents.TypeFile
			if err := os.WriteFile(content.Source, e.content, 0o600); err != nil {
				return err
			}
		}
		info.Contents = append(info.Contents, content)
	}
	for _, own := range ownDirs {
		if slices.ContainsFunc(list, func(e entry) bool { return strings.HasPrefix(e.name, own+"/") }) {
			info.Contents = append(info.Contents, &contents.Content{Destination: "/" + own, Type: contents.TypeDir, FileInfo: &contents.ContentFileInfo{Mode: 0o755}})
		}
	}
	nfpm.WithDefaults(info)
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	file, err := os.Create(r.artefact(packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, file), file.Close())
}
