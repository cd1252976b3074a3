#!/bin/bash
# The first process of a guest that guest.sh has booted. Its root is the machine's, read-only. The kernel's command line
# sets modules, the directory of the kernel's modules, and work, that of guest.sh.
set -u
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# All is written to memory.
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
busybox insmod "$modules/$(uname -r)/kernel/fs/overlayfs/overlay.ko"
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
cd /mnt/root && pivot_root . mnt && cd /

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /lib/modules "$work"
ln -s /proc/self/fd /dev/fd
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t hostfs -o "$work" work "$work" || mount -t virtiofs work "$work"

# The kernel loads what it needs with modprobe, but nothing asks for the last ones.
mount --bind "/mnt$modules" /lib/modules
ln -sf "$(command -v busybox)" /sbin/modprobe
modprobe br_netfilter
modprobe tun
modprobe virtio_net # QEMU's network card

# Where nf_tables is not to be had, the programs of iptables are the older ones.
if nft add table inet probe; then
	nft delete table inet probe
else
	for program in iptables ip6tables; do
		for verb in "" -save -restore; do ln -sf "$program-legacy$verb" "/usr/sbin/$program$verb"; done
	done
fi

ip link set lo up
bash "$work/command" </dev/null >"$work/output" 2>&1
echo $? >"$work/status"
sync
echo o >/proc/sysrq-trigger
sleep 60
