package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	contents "github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"

	"github.com/cnibox/cnibox/pkg/process/box"
)

const maintainer = "The cnibox maintainers <cnibox@users.noreply.github.com>"

// packages makes for each architecture two packages for Debian, and the same two for Fedora: cnibox, and cnibox-opt with the plugins in /opt/cni/bin.
func packages(r Release) error {
	for _, arch := range r.Arches {
		for _, format := range []string{"deb", "rpm"} {
			dir, err := os.MkdirTemp("", "cnibox-package-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			if err := cmp.Or(inUsr(r, arch, format, dir), inOpt(r, arch, format, dir)); err != nil {
				return fmt.Errorf("%s for %s: %w", format, arch, err)
			}
		}
	}
	return nil
}

// inUsr makes cnibox. What depends on the package of the reference plugins is content with this one, which takes its place.
func inUsr(r Release, arch, format, dir string) error {
	list, err := system(r, arch, map[string]place{"deb": ofDebian, "rpm": ofFedora}[format])
	if err != nil {
		return err
	}
	info := packageInfo(r, arch, format, "cnibox", `CNI plugins in one binary, and cnictl
All plugins that connect the containers of a node to its networks: bridge,
host-local, portmap, firewall and the others of the reference package, under
the same names and with the same configuration. podman, buildah, CRI-O and
nerdctl find them. cnictl shows, checks and repairs the networks.`)
	info.Provides = []string{is(format, "containernetworking-plugins", replaced()), is(format, "container-network-stack", "1")}
	info.Conflicts = []string{"containernetworking-plugins"}
	info.Replaces = info.Conflicts
	info.Suggests = []string{"iptables"}
	return cmp.Or(addScripts(r, info, dir), writePackage(r, info, list, format, dir))
}

// inOpt makes cnibox-opt: the same plugins once more, as a pod may see that directory alone. It stands for the package that the kubelet's depends on.
func inOpt(r Release, arch, format, dir string) error {
	list, err := pluginsIn(r, arch, "opt/cni/bin")
	if err != nil {
		return err
	}
	info := packageInfo(r, arch, format, "cnibox-opt", `CNI plugins in /opt/cni/bin
The plugins of cnibox in the directory in which containerd and the kubelet look
for them, if they are not configured otherwise.`)
	info.Depends = []string{is(format, "cnibox", version(r)+"-1")}
	info.Provides = []string{is(format, "kubernetes-cni", replaced())}
	info.Conflicts = []string{"kubernetes-cni"}
	info.Replaces = info.Conflicts
	return writePackage(r, info, list, format, dir)
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
func is(format, name, version string) string {
	if format == "deb" {
		return fmt.Sprintf("%s (= %s)", name, version)
	}
	return fmt.Sprintf("%s = %s", name, version)
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
	if format == "rpm" { // Debian has it in the file copyright
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

// addScripts has a package run what is in dist/packages. Their only parameter is the list of units.
func addScripts(r Release, info *nfpm.Info, dir string) error {
	units, err := os.ReadDir(filepath.Join(r.Source, "dist/systemd"))
	if err != nil {
		return err
	}
	var names []string
	for _, u := range units {
		names = append(names, u.Name())
	}
	for name, at := range map[string]*string{"postinst": &info.Scripts.PostInstall, "prerm": &info.Scripts.PreRemove} {
		text, err := os.ReadFile(filepath.Join(r.Source, "dist/packages", name))
		if err != nil {
			return err
		}
		*at = filepath.Join(dir, name)
		text = bytes.ReplaceAll(text, []byte("@UNITS@"), []byte(strings.Join(names, " ")))
		if err := os.WriteFile(*at, text, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// ownDirs are directories that may be of nobody else: rpm leaves them when a package goes, if it is not told.
var ownDirs = []string{"opt/cni", "opt/cni/bin", "usr/lib/cni", "usr/libexec/cni", "usr/lib/NetworkManager", "usr/lib/NetworkManager/conf.d",
	"usr/share/doc/cnibox", "usr/share/doc/cnibox-opt", "usr/share/licenses/cnibox"}

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
	file, err := os.Create(filepath.Join(r.Out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, file), file.Close())
}
