package packages

import (
	"strings"
	"testing"
)

// TestDebian has cnibox take the place of Debian's plugins, a newer cnibox that of the first, and Debian's plugins theirs again, with pods on their network.
func TestDebian(t *testing.T) {
	s := newSystem(t, "cnibox_*_amd64.deb", "cnictl_*_amd64.deb", "cnibox-etcd_*_amd64.deb", "cnibox-opt_*_amd64.deb")
	before := s.files()
	debians := "/root/cnictl --bin-dir /usr/lib/cni"
	s.attach(debians, "old")

	s.run("apt-get install -y /root/cnibox_*.deb /root/cnictl_*.deb /root/cnibox-etcd_*.deb /root/cnibox-opt_*.deb")
	if has := s.run("dpkg-query -W -f '${db:Status-Status} ${Package}\n' podman containernetworking-plugins cnibox cnibox-etcd cnibox-opt cnictl | grep ^installed"); has !=
		"installed cnibox\ninstalled cnibox-etcd\ninstalled cnibox-opt\ninstalled cnictl\ninstalled podman\n" {
		t.Errorf("after the installation:\n%s", has)
	}
	if version := s.run("cnictl --version; /usr/lib/cni/bridge --version 2>&1"); strings.Count(version, "cnibox") < 2 {
		t.Errorf("cnictl and the bridge are not cnibox's:\n%s", version)
	}
	s.run("dpkg --audit; dpkg --verify cnibox cnictl cnibox-etcd cnibox-opt")
	s.standAlone("/usr/lib/cni", "/opt/cni/bin")
	s.run("cnictl install --dir /opt/cni/bin; dpkg --verify cnibox-opt; cnictl install --dir /srv/cni; /srv/cni/bridge --version; cnictl uninstall --dir /srv/cni; rmdir /srv/cni")
	s.run("systemd-analyze verify $(ls /usr/lib/systemd/system/cnibox-* | sed 's/@/@boot/')")
	s.run("systemctl enable cnibox-gc.timer cnibox-dhcp.socket")
	s.check("cnictl", "old")
	s.attach("cnictl", "new")

	s.run(`for name in cnibox cnictl cnibox-etcd cnibox-opt; do
			dpkg-deb -R /root/${name}_*.deb /tmp/$name
			sed -i 's/\(cnibox (= \|^Version: \)\(.*\)-1/\1\2-2/' /tmp/$name/DEBIAN/control
			dpkg-deb -Zgzip -b /tmp/$name /tmp/$name.deb
		done
		dpkg -i /tmp/cnibox.deb /tmp/cnictl.deb /tmp/cnibox-etcd.deb /tmp/cnibox-opt.deb
		systemctl is-enabled cnibox-gc.timer`)
	s.check("cnictl --bin-dir /opt/cni/bin", "old", "new")
	s.check("cnictl --bin-dir /usr/lib/cni", "old", "new")
	s.detach("cnictl", "old", "new")

	s.run(`apt-get install -y /root/containernetworking-plugins_*.deb; dpkg --purge cnibox cnictl cnibox-etcd cnibox-opt; dpkg -s podman
		mkdir -p /opt`) // dpkg takes a directory that is empty then, and this one is of no package
	s.wantFiles(before)
	s.attach(debians, "again")
	s.detach(debians, "again")
}

// TestDebianOldLayout has the packages take the place of those of an earlier version, in which all plugins were links to a file elsewhere, under pods that run;
// then Debian's plugins take theirs, and cnibox once more.
func TestDebianOldLayout(t *testing.T) {
	s := newSystem(t, "cnibox_*_amd64.deb", "cnictl_*_amd64.deb", "cnibox-opt_*_amd64.deb")
	before := s.files()
	s.run(`for name in cnibox cnibox-opt; do
			dpkg-deb -R /root/${name}_*.deb /tmp/$name
			cd /tmp/$name
			` + oldLayout + `
			sed -i 's/\(cnibox (= \|^Version: \).*-1/\10.0.9-1/' DEBIAN/control
			rm DEBIAN/md5sums
			dpkg-deb -Zgzip -b . /tmp/$name.deb
		done
		apt-get install -y /tmp/cnibox.deb /tmp/cnibox-opt.deb
		test -L /opt/cni/bin/bridge -a -L /usr/lib/cni/bridge`)
	s.attach("/root/cnictl --bin-dir /usr/lib/cni", "usr")
	s.attach("/root/cnictl --bin-dir /opt/cni/bin", "opt")

	s.run("apt-get install -y /root/cnibox_*.deb /root/cnictl_*.deb /root/cnibox-opt_*.deb; dpkg --audit; dpkg --verify cnibox cnictl cnibox-opt; test ! -e /usr/libexec/cnibox")
	s.standAlone("/usr/lib/cni", "/opt/cni/bin")
	s.check("cnictl --bin-dir /opt/cni/bin", "usr", "opt")
	s.attach("cnictl", "new")
	s.run("apt-get install -y /root/containernetworking-plugins_*.deb; apt-get install -y /root/cnibox_*.deb /root/cnibox-opt_*.deb")
	s.check("cnictl --bin-dir /usr/lib/cni", "usr", "opt", "new")
	s.detach("cnictl", "usr", "opt", "new")
	s.run("apt-get install -y /root/containernetworking-plugins_*.deb; dpkg --purge cnibox cnictl cnibox-opt; mkdir -p /opt")
	s.wantFiles(before)
}

// oldLayout makes the files of a package those of an earlier version, in the directory with all of its files.
const oldLayout = `mkdir -p usr/libexec/cnibox
	for dir in usr/lib/cni usr/libexec/cni opt/cni/bin; do
		[ -d $dir ] || continue
		case $dir in opt*) rm $dir/cnibox ;; *) mv $dir/cnibox usr/libexec/cnibox/cnibox ;; esac
		for file in $dir/*; do ln -sf /usr/libexec/cnibox/cnibox $file; done
	done
	rmdir --ignore-fail-on-non-empty usr/libexec/cnibox usr/libexec`

// TestFedora has rpm install, replace and remove cnibox, with pods on its network. What it needs of Fedora is rpm itself.
func TestFedora(t *testing.T) {
	s := newSystem(t, "cnibox-[0-9]*.x86_64.rpm", "cnictl-[0-9]*.x86_64.rpm", "cnibox-etcd-[0-9]*.x86_64.rpm", "cnibox-opt-*.x86_64.rpm")
	s.run("mkdir -p /usr/share/licenses /usr/share/fish/vendor_completions.d /usr/share/zsh/site-functions") // Fedora's package filesystem has them
	before := s.files()
	rpm := func(args string) {
		t.Helper()
		s.host.MustRun(t, "sh", "-exc", "rpm --root "+s.root+" --dbpath /var/lib/rpm "+args)
	}
	rpm("--initdb")
	rpm("--nodeps -i " + s.root + "/root/cnibox-[0-9]*.rpm " + s.root + "/root/cnictl-[0-9]*.rpm")
	s.attach("cnictl", "old")
	rpm("--nodeps -i " + s.root + "/root/cnibox-opt-*.rpm")
	rpm("--nodeps -U --replacepkgs " + s.root + "/root/cnibox-*.rpm " + s.root + "/root/cnictl-*.rpm")
	rpm("-V cnibox cnictl cnibox-etcd cnibox-opt")
	s.attach("cnictl", "new")
	s.check("/root/cnictl --bin-dir /usr/libexec/cni", "old", "new")
	s.detach("cnictl", "old", "new")
	rpm("--nodeps -e cnibox cnictl cnibox-etcd cnibox-opt")
	s.wantFiles(before)
}

// TestArchLinux has pacman install, replace and remove cnibox, with pods on its network. What it needs of Arch Linux is pacman itself.
func TestArchLinux(t *testing.T) {
	s := newSystem(t, "cnibox-[0-9]*-x86_64.pkg.tar.zst", "cnictl-[0-9]*-x86_64.pkg.tar.zst", "cnibox-etcd-*-x86_64.pkg.tar.zst", "cnibox-opt-*-x86_64.pkg.tar.zst")
	// Debian's plugins are where cnibox wants to be.
	s.run(`dpkg --purge --force-depends containernetworking-plugins
		printf '[options]\nArchitecture = x86_64\nSigLevel = Never\n' >/root/pacman.conf`)
	before := s.files()
	pacman := "pacman --config /root/pacman.conf --noconfirm "
	s.run(pacman + "-U /root/cnibox-[0-9]*.zst /root/cnictl-*.zst")
	s.attach("cnictl", "old")
	s.run(pacman + "-U /root/cnibox-etcd-*.zst /root/cnibox-opt-*.zst")
	s.run(`for file in /root/*.zst; do
			mkdir /tmp/newer
			tar -C /tmp/newer --zstd -xf $file
			sed -i -e 's/^pkgver = \(.*\)-1$/pkgver = \1-2/' -e 's/^depend = cnibox=\(.*\)-1$/depend = cnibox=\1-2/' /tmp/newer/.PKGINFO
			(cd /tmp/newer && tar --zstd -cf /tmp/$(basename $file) .PKGINFO $(ls -A | grep -v PKGINFO))
			rm -r /tmp/newer
		done
		` + pacman + "-U /tmp/*.zst")
	if has := s.run("pacman --config /root/pacman.conf -Q"); strings.Count(has, "-2\n") != 4 {
		t.Errorf("after the upgrade:\n%s", has)
	}
	s.attach("cnictl", "new")
	s.check("cnictl --bin-dir /usr/lib/cni", "old", "new")
	s.detach("cnictl", "old", "new")
	s.run(pacman + "-R cnibox cnictl cnibox-etcd cnibox-opt; mkdir -p /opt") // pacman takes a directory that is empty then
	s.wantFiles(before)
}

// TestFedoraOldLayout has rpm put the packages over those of an earlier version, in which all plugins were links to a file elsewhere, under a pod that runs.
func TestFedoraOldLayout(t *testing.T) {
	s := newSystem(t, "cnibox-[0-9]*.x86_64.rpm", "cnictl-[0-9]*.x86_64.rpm", "cnibox-opt-*.x86_64.rpm")
	s.run("mkdir -p /usr/share/licenses /usr/share/fish/vendor_completions.d /usr/share/zsh/site-functions /usr/libexec")
	before := s.files()
	rpm := func(args string) {
		t.Helper()
		s.host.MustRun(t, "sh", "-exc", "rpm --root "+s.root+" --dbpath /var/lib/rpm "+args)
	}
	rpm("--initdb")
	s.host.MustRun(t, "sh", "-exc", `for name in cnibox cnibox-opt; do
			mkdir -p /run/build/$name/old
			cd /run/build/$name/old
			rpm2cpio `+s.root+`/root/$name-[0-9]*.rpm | busybox cpio -idm
			rm -rf usr/share usr/lib
			`+oldLayout+`
			printf '%s\n' "Name: $name" 'Version: 0.0.9' 'Release: 1' 'Summary: cnibox' 'License: Apache-2.0' 'BuildArch: x86_64' 'AutoReqProv: no' '%define __os_install_post %{nil}' \
				'%description' cnibox '%install' "cp -a /run/build/$name/old/. %{buildroot}" '%files' >../spec
			find . ! -type d -printf '/%P\n' >>../spec
			rpmbuild --quiet -bb --define "_topdir /run/build/$name" --define "_rpmdir /run/build" ../spec
		done
		cp /run/build/x86_64/*.rpm `+s.root+`/tmp/`)
	rpm("--nodeps -i " + s.root + "/tmp/cnibox-0.0.9-1.x86_64.rpm " + s.root + "/tmp/cnibox-opt-0.0.9-1.x86_64.rpm")
	s.run("test -L /opt/cni/bin/bridge -a -L /usr/libexec/cni/bridge")
	s.attach("/root/cnictl --bin-dir /opt/cni/bin", "old")
	rpm("--nodeps -U " + s.root + "/root/cnibox-[0-9]*.rpm " + s.root + "/root/cnibox-opt-*.rpm " + s.root + "/root/cnictl-[0-9]*.rpm")
	rpm("-V cnibox cnibox-opt cnictl")
	s.standAlone("/usr/libexec/cni", "/opt/cni/bin")
	s.run("test ! -e /usr/libexec/cnibox/cnibox; cnictl install --dir /opt/cni/bin")
	rpm("-V cnibox-opt")
	s.attach("cnictl", "new")
	s.check("cnictl --bin-dir /usr/libexec/cni", "old", "new")
	s.detach("cnictl", "old", "new")
	rpm("--nodeps -e cnibox cnictl cnibox-opt")
	s.run("rm -rf /usr/libexec/cnibox /opt/cni; mkdir -p /opt") // directories that the old packages did not list
	s.wantFiles(before)
}

// TestSystemExtension lays the image over /usr, as systemd-sysext does on a system where nothing can be installed. It has the image
// unpacked, since this machine may have no loop devices.
func TestSystemExtension(t *testing.T) {
	s := newSystem(t, "cnibox-sysext-linux-amd64-*.raw")
	before := s.files()
	s.host.MustRun(t, "sh", "-exc", "mkdir -p "+s.root+"/run/extensions; unsquashfs -quiet -no-progress -dest "+s.root+"/run/extensions/cnibox "+s.root+"/root/*.raw")
	s.run("mount --make-shared /; systemd-sysext merge") // it mounts in a namespace of its own
	s.attach("cnictl", "web")
	s.check("cnictl --bin-dir /usr/lib/cni", "web")
	s.detach("cnictl", "web")
	s.run("systemd-sysext unmerge; rm -r /run/extensions")
	s.wantFiles(before)
}
