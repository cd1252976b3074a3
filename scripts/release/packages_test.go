package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/plugins"
)

// unpack has a script put what is in an artefact into the current directory, which it returns.
func unpack(t *testing.T, path, script string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if printed, err := run(dir, "file="+path+"\n"+script); err != nil {
		t.Fatalf("%s: %v\n%s", path, err, printed)
	}
	return dir
}

// TestPackages unpacks each package and the system extension: all plugins are there, and this machine's run.
func TestPackages(t *testing.T) {
	for _, c := range []struct {
		artefact, unpack string
		plugins          []string // directories
		files            []string
	}{
		{"cnibox_*.deb", `dpkg-deb -x "$file" .`, []string{"usr/lib/cni"}, []string{"usr/share/doc/cnibox/copyright", "usr/share/doc/cnibox/" + noticesFile,
			"usr/lib/systemd/system/cnibox-dhcp.socket", "usr/lib/systemd/network/00-cnibox.network", "usr/lib/NetworkManager/conf.d/cnibox.conf", "usr/lib/tmpfiles.d/cnibox.conf"}},
		{"cnictl_*.deb", `dpkg-deb -x "$file" .`, nil, []string{"usr/bin/cnictl", "usr/share/doc/cnictl/" + noticesFile, "usr/share/man/man1/cnictl-show.1.gz",
			"usr/share/zsh/vendor-completions/_cnictl", "usr/lib/systemd/system/cnibox-agent.service"}},
		{"cnibox-etcd_*.deb", `dpkg-deb -x "$file" .`, nil, []string{"usr/lib/cni/etcd", "usr/lib/cni/cnibox-etcd", "usr/share/doc/cnibox-etcd/" + noticesFile}},
		{"cnibox-opt_*.deb", `dpkg-deb -x "$file" .`, []string{"opt/cni/bin"}, []string{"usr/share/doc/cnibox-opt/copyright", "usr/share/doc/cnibox-opt/" + noticesFile}},
		{"cnibox-[0-9]*.rpm", `rpm2archive - <"$file" | tar xz`, []string{"usr/libexec/cni"}, []string{"usr/share/licenses/cnibox/" + noticesFile, "usr/lib/systemd/system/cnibox-dhcp.socket"}},
		{"cnictl-[0-9]*.rpm", `rpm2archive - <"$file" | tar xz`, nil, []string{"usr/bin/cnictl", "usr/share/licenses/cnictl/" + noticesFile, "usr/share/zsh/site-functions/_cnictl"}},
		{"cnibox-etcd-[0-9]*.rpm", `rpm2archive - <"$file" | tar xz`, nil, []string{"usr/libexec/cni/etcd", "usr/libexec/cni/cnibox-etcd"}},
		{"cnibox-opt-*.rpm", `rpm2archive - <"$file" | tar xz`, []string{"opt/cni/bin"}, nil},
		{"cnibox_*.apk", `tar -xzif "$file"`, []string{"usr/libexec/cni"}, nil}, // two archives, one behind the other
		{"cnictl_*.apk", `tar -xzif "$file"`, nil, []string{"usr/bin/cnictl"}},
		{"cnibox-[0-9]*.pkg.tar.zst", `unzstd <"$file" | tar x`, []string{"usr/lib/cni"}, nil},
		{"cnictl-[0-9]*.pkg.tar.zst", `unzstd <"$file" | tar x`, nil, []string{"usr/bin/cnictl"}},
		{"cnibox-sysext-*.raw", `unsquashfs -quiet -no-progress -force -dest . "$file"`, []string{"usr/lib/cni", "usr/libexec/cni"}, []string{
			"usr/lib/extension-release.d/extension-release.cnibox", "usr/lib/systemd/system/cnibox-dhcp.socket"}},
	} {
		for _, path := range artefacts(t, c.artefact) {
			dir := unpack(t, path, c.unpack)
			for _, file := range c.files {
				if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode().Perm()&0o644 != 0o644 {
					t.Errorf("%s: %s: %v %v", path, file, err, info)
				}
			}
			for _, at := range c.plugins {
				for _, name := range append([]string{"cnibox"}, plugins.All.Names()...) {
					f := pluginfile.Identify(filepath.Join(dir, at, name))
					if info, err := os.Lstat(filepath.Join(dir, at, name)); err != nil || !info.Mode().IsRegular() || f.Origin != pluginfile.Ours || f.Version() == "" {
						t.Errorf("%s: %s/%s: %v, %v, %+v", path, at, name, info, err, f)
					}
				}
			}
		}
	}
}

// TestTimes looks whether all files of an apk have the time of the release, its scripts, too: two builds are the same.
func TestTimes(t *testing.T) {
	for _, path := range artefacts(t, "*.apk") {
		times, err := exec.Command("bash", "-c", `tar -tvzif "$0" --utc --full-time 2>/dev/null | awk '{ print $4, $5 }' | grep -v ^1970-01-01 | sort -u`, path).Output() // what is about the package has no time
		if err != nil || bytes.Count(times, []byte("\n")) != 1 {
			t.Errorf("%s: %v: there are files of\n%s", path, err, times)
		}
	}
}

// TestPackagesTakeThePlaceOfOthers asks dpkg and rpm what a package stands for, and what it can't be beside.
func TestPackagesTakeThePlaceOfOthers(t *testing.T) {
	for _, c := range []struct{ artefact, query, want string }{
		{"cnibox_*.deb", `dpkg-deb -f "$0" Provides Conflicts Replaces`, "Provides: containernetworking-plugins (= 1.9.1), container-network-stack (= 1)\nConflicts: containernetworking-plugins\nReplaces: containernetworking-plugins\n"},
		{"cnibox-opt_*.deb", `dpkg-deb -f "$0" Provides Conflicts Depends`, "Provides: kubernetes-cni (= 1.9.1)\nConflicts: kubernetes-cni\nDepends: cnibox (= 0.1.0-1)\n"},
		{"cnibox-etcd_*.deb", `dpkg-deb -f "$0" Depends`, "cnibox (= 0.1.0-1)\n"},
		{"cnictl_*.deb", `dpkg-deb -f "$0" Provides Conflicts Depends`, ""},
		// An upgrade of a system does not take one for the other unasked, so nothing is obsoleted.
		{"cnibox-[0-9]*.rpm", `rpm -qp --provides "$0" | grep network; rpm -qp --conflicts --obsoletes "$0"`, "containernetworking-plugins = 1.9.1\ncontainer-network-stack = 1\ncontainernetworking-plugins\n"},
		{"cnibox-opt-*.rpm", `rpm -qp --provides --conflicts --obsoletes --requires "$0" | grep -e kubernetes -e "cnibox ="`, "kubernetes-cni = 1.9.1\nkubernetes-cni\ncnibox = 0.1.0-1\n"},
		{"cnibox_*.apk", `tar -xzOif "$0" .PKGINFO | grep -e ^provides -e ^replaces`, "provides = cni-plugins=1.9.1\nprovides = container-network-stack=1\n"},
		{"cnibox-[0-9]*.pkg.tar.zst", `unzstd <"$0" | tar xO .PKGINFO | grep -e ^provides -e ^conflict -e ^replaces`, "conflict = cni-plugins\nprovides = cni-plugins=1.9.1\nprovides = container-network-stack=1\n"},
	} {
		for _, path := range artefacts(t, c.artefact) {
			got, err := exec.Command("bash", "-c", c.query, path).Output()
			if err != nil || string(got) != c.want {
				t.Errorf("%s: %v: got\n%swant\n%s", path, err, got, c.want)
			}
		}
	}
}
