#!/bin/bash
# Runs a program under another kernel: guest.sh uml|qemu-5.10|qemu-6.1|qemu-6.12 PROGRAM [ARGUMENT...]
#
# The program runs as root in a guest that has this machine's files, with this working directory and environment. What it
# writes is lost with the guest, there is no network but cards for tests to use up, which CNIBOX_HARDWARE names, and its
# output and its exit status are this script's. The kernels
# are Debian's: user-mode-linux 6.1, which needs nothing and has nf_tables for bridges only, and in QEMU, which emulates
# the processor, the kernels for clouds of Debian 11, 12 and 12's backports, which have all.
set -euo pipefail

kind=${1:?uml, qemu-5.10, qemu-6.1 or qemu-6.12}
shift
hardware=(vec{0..31}) # network cards whose wire leads nowhere
[ "$kind" = uml ] || hardware=(eth0)
scripts=$(realpath "$(dirname "$0")")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cnibox

# The guest writes to this directory and to no other.
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# unpack PACKAGE [RELEASE] unpacks a Debian package, of this machine's release or another, into the cache, if it is not there.
unpack() {
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9
	local to=$cache/$1${2:+-$2} options=(-q -o "APT::Sandbox::User=root") newest
	if [ ! -d "$to" ]; then
		apt-get update -q >&2
		[ -z "${2:-}" ] || other_release "$2"
		# linux-image-cloud-amd64 is but a name for the newest.
		newest=$(apt-cache "${options[@]}" depends "$1" | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p')
		cd "$work"
		apt-get "${options[@]}" download "${newest:-$1}" >&2
		dpkg-deb -x ./*.deb files
		modules
		cd "$OLDPWD"
		mv -T "$work/files" "$to"
	fi
	exec 9>&-
}

# other_release RELEASE adds options by which apt has lists of its own: of this release, from the mirrors that this machine has its own from.
other_release() {
	local security="s/^Debian-Security \(.*\)/deb \1 $1-security main/p"
	[[ $1 != *-backports ]] || security=
	mkdir -p "$work"/apt/{lists,cache/archives}/partial
	apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' | sort -u |
		sed -n "s/^Debian \(.*\)/deb \1 $1 main/p; $security" >"$work/apt/sources.list"
	if [ ! -s "$work/apt/sources.list" ]; then
		echo "guest.sh: apt has no mirror of Debian here, where the kernel of Debian's $1 could come from" >&2
		exit 125
	fi
	options+=(-o "Dir::Etc::SourceList=$work/apt/sources.list" -o "Dir::Etc::SourceParts=-" -o "Dir::State::Lists=$work/apt/lists"
		-o "Dir::Cache=$work/apt/cache" -o "Acquire::Check-Valid-Until=false") # nobody renews the lists of an old release
	apt-get "${options[@]}" update >&2
}

# modules has the modules of an unpacked kernel, if it is one, as its first process looks for them.
modules() {
	[ -d files/lib/modules ] || return 0
	find files/lib/modules -name '*.ko.xz' -exec unxz {} +
	busybox depmod -b files "$(ls files/lib/modules)"
}

boot_uml() {
	unpack user-mode-linux
	# A card of user-mode-linux can be set up once.
	local card fd cards=()
	mkfifo "$work/wire"
	for card in "${hardware[@]}"; do
		exec {fd}<>"$work/wire"
		cards+=("$card:transport=fd,fd=$fd,depth=1")
	done
	local uml=$cache/user-mode-linux/usr
	# Without TMPDIR the guest's memory is a file in /dev/shm.
	env -u TMPDIR HOME="$work" "$uml/bin/linux.uml" mem=1G uml_dir="$work" con=null con0=null,fd:1 quiet ro \
		root=/dev/root rootfstype=hostfs rootflags=/ \
		"${cards[@]}" \
		init="$scripts/guest-init.sh" work="$work" modules="$uml/lib/uml/modules" </dev/null >"$work/console" 2>&1 &
}

# boot_qemu RELEASE boots Debian's kernel of that release.
boot_qemu() {
	unpack linux-image-cloud-amd64 "$1"
	local kernel=$cache/linux-image-cloud-amd64-$1 version
	version=$(ls "$kernel/lib/modules")
	initramfs "$kernel" "$version"
	share host / always
	share work "$work" none
	# A plain processor is a fifth faster than one with all that QEMU can emulate. QEMU 7.2 emulates cmpxchg16b wrongly, which kernels
	# from 6.12 on notice. Without a processor that has random numbers, 5.10 waits minutes for some. On a busy machine the emulated timer
	# comes too late for the kernel's check of it, which would end in a panic.
	qemu-system-x86_64 -accel tcg -cpu qemu64,-cx16,+rdrand -M q35 -m 1G -nodefaults -no-user-config -no-reboot -display none -serial stdio \
		-kernel "$kernel/boot/vmlinuz-$version" -initrd "$work/initramfs" \
		-append "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check work=$work modules=$kernel/lib/modules" \
		-netdev hubport,id=wire,hubid=0 -device virtio-net-pci,netdev=wire \
		-object memory-backend-memfd,id=memory,size=1G,share=on -numa node,memdev=memory "${devices[@]}" \
		</dev/null >"$work/console" 2>&1 &
}

# initramfs KERNEL VERSION makes what mounts the machine's files.
initramfs() {
	local root=$work/root
	mkdir -p "$root/bin" "$root/proc" "$root/machine"
	cp "$(command -v busybox)" "$root/bin/busybox"
	(cd "$1" && find lib/modules \( -name 'virtio*.ko' -o -name fuse.ko -o -name modules.dep \) -exec cp --parents -t "$root" {} +)
	cat >"$root/init" <<-INIT
		#!/bin/busybox sh
		busybox mount -t proc proc /proc
		busybox modprobe -a virtio_pci virtiofs
		busybox umount /proc
		busybox mount -t virtiofs -o ro host /machine
		exec busybox switch_root /machine $scripts/guest-init.sh
	INIT
	chmod +x "$root/init"
	(cd "$root" && find . | busybox cpio -o -H newc) >"$work/initramfs" 2>"$work/initramfs.log"
}

# share NAME DIRECTORY CACHE has a guest of QEMU see a directory.
devices=()
share() {
	/usr/lib/qemu/virtiofsd --socket-path="$work/$1.sock" -o source="$2" -o cache="$3" -o sandbox=chroot >"$work/$1.log" 2>&1 &
	until [ -S "$work/$1.sock" ]; do kill -0 $! && sleep 0.05; done
	devices+=(-chardev "socket,id=$1,path=$work/$1.sock" -device "vhost-user-fs-pci,queue-size=1024,chardev=$1,tag=$1")
}

{
	export -p
	echo "export CNIBOX_HARDWARE='${hardware[*]}'"
	printf 'cd %q && exec' "$PWD"
	printf ' %q' "$@"
} >"$work/command"
case $kind in
uml) boot_uml ;;
qemu-5.10) boot_qemu bullseye ;;
qemu-6.1) boot_qemu bookworm ;;
qemu-6.12) boot_qemu bookworm-backports ;;
*) echo "guest.sh: no kernel $kind" >&2; exit 125 ;;
esac
wait $! || true # it says nothing of the program
cat "$work/output" || true
if [ ! -s "$work/status" ]; then
	tail -n 20 "$work/console" >&2
	echo "guest.sh: the guest ended before the program did; the above is from its console" >&2
	exit 125
fi
exit "$(cat "$work/status")"
