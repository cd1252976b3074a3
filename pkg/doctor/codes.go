package doctor

import "slices"

// Code is a kind of finding. docs/operate/cnictl.md has them as a table.
type Code struct {
	Name     string
	Severity Severity
	Meaning  string
	Remedy   string // in general; a finding has it with the node's own names
	Fixable  bool   // the remedy can be run without a person who looks at it first
}

func codeOf(name string) Code {
	i := slices.IndexFunc(Codes, func(c Code) bool { return c.Name == name })
	return Codes[i] // a test makes sure that it is there
}

// Codes are all kinds, the worst first.
var Codes = []Code{
	{"attachment-broken", Error, "Something has changed what ADD made: CHECK fails (with --deep).", "`cnictl repair NETWORK`", false},
	{"bridge-down", Error, "Nothing passes between the bridge's containers, or to and from them.", "`ip link set dev BRIDGE up`", true},
	{"bridge-other-subnet", Error, "The next ADD fails with \"already has an IP address different from\": the subnet was changed, or flannel has leased another one.", "`ip address delete ADDRESS dev BRIDGE`", false},
	{"bridge-port-lost", Error, "These containers are cut off: something has taken their host ends out of the bridge.", "`ip link set dev VETH master BRIDGE`", true},
	{"conf-dir-replaced", Error, "The runtime does not see new or changed networks. Who reinstalls CNI deletes what is in the directory, not the directory.", "`systemctl restart RUNTIME`", false},
	{"dhcp-daemon-down", Error, "No container gets an address of this network, and no lease is extended.", "`systemctl enable --now cnibox-dhcp.socket`", false},
	{"docker-drops", Error, "Docker has set the policy of chain FORWARD to DROP: containers of this network don't reach anything but the host.", "`iptables -I DOCKER-USER …`, or the plugin `firewall`", false},
	{"firewalld-no-zone", Error, "firewalld rejects what containers of this network send through the host.", "`firewall-cmd --zone=trusted --add-source=SUBNET`, or the plugin `firewall`", false},
	{"firewalld-sources-lost", Error, "firewalld was reloaded or restarted, and rejects what these containers send through the host.", "`firewall-cmd --zone=ZONE --change-source=ADDRESS`", true},
	{"forward-drops", Error, "The host drops what containers of this network send through it.", "`iptables -I FORWARD …`, `nft insert rule …`, or the plugin `firewall`", false},
	{"forwarding-off", Error, "The host does not forward packets: containers reach nothing but the host. Something has set it back after ADD had set it.", "`sysctl -w net.ipv4.ip_forward=1`", true},
	{"gateway-gone", Error, "These containers don't reach their gateway, and so nothing outside of their bridge.", "`ip address add GATEWAY dev BRIDGE`", true},
	{"kernel-feature-missing", Error, "No container gets an interface of this network.", "`modprobe -a MODULE`", false},
	{"network-file-broken", Error, "libcni finds no network that comes behind this file, and the runtime may be not ready.", "`mv FILE FILE.broken`, or correct it", false},
	{"network-not-ready", Error, "A plugin says that it can't serve an ADD now (STATUS).", "what the plugin says", false},
	{"plugin-noexec", Error, "Plugins can't be executed from where they are.", "`mount -o remount,exec MOUNT`", false},
	{"plugin-missing", Error, "No container gets an interface of this network, and none is taken away.", "`cnictl install --dir DIR --only NAMES`", false},
	{"plugin-not-executable", Error, "A runtime takes this file, and fails with \"permission denied\".", "`chmod 755 FILE`", true},
	{"rules-gone", Error, "Somebody has flushed the packet filter: these containers are not masqueraded, and their ports not published.", "`cnictl repair NETWORK`", false},
	{"state-full", Error, "ADD fails, since nothing can be written down.", "free some space", false},
	{"state-read-only", Error, "ADD fails, since nothing can be written down, and DEL can't give addresses back.", "`mount -o remount,rw MOUNT`", false},
	{"subnet-env-missing", Error, "flannel's daemon has not leased a subnet for this node: no container gets an address.", "restart flannel's daemon", false},
	{"subnet-env-torn", Error, "flannel's file for this node is not whole: no container gets an address.", "restart flannel's daemon", false},
	{"subnets-overlap", Error, "Two containers can have one address, or what is sent to a container goes elsewhere.", "another subnet, by `sed -i …` in the network's file", false},
	{"ufw-drops", Error, "ufw drops what containers of this network send through the host.", "`ufw route allow in on BRIDGE`, `ufw route allow out on BRIDGE`, or the plugin `firewall`", false},

	{"bridge-nearly-full", Warning, "The kernel gives a bridge 1,023 ports. The ADD after the last fails.", "remove ports that nobody needs, or use another network", false},
	{"bridge-nf-off", Warning, "A Service of Kubernetes does not work from a container on the same bridge as the one behind it.", "`sysctl -w net.bridge.bridge-nf-call-iptables=1`", false},
	{"cache-torn", Warning, "libcni has no result of an attachment, such as after a power failure: it can't be checked or repaired, and gc frees nothing of its network.", "`rm FILE` if it is nobody's, or start the container again", false},
	{"gc-stopped", Warning, "Something is held for attachments of which no cache has a result: gc can't tell whether they are in use, and frees nothing of their network.", "`cnictl del NETWORK --id CONTAINER` for those that are gone, or `--cache-dir` of their runtime", false},
	{"ipvs-nftables", Warning, "Masquerading and published ports come before kube-proxy's rules, and Services may not work.", "the backend `iptables`, by `sed -i …` in the network's file", false},
	{"mtu-above-uplink", Warning, "Large packets are dropped on their way out where ICMP does not come back, so that connections hang.", "the uplink's MTU, by `sed -i …` in the network's file", false},
	{"network-in-two-caches", Warning, "Two runtimes use the network: GC of one removes what the other's containers have.", "give one of them a network of its own", false},
	{"network-name-twice", Warning, "Of two files with one network libcni takes the first, and changes to the other do nothing.", "`mv FILE FILE.unused`", false},
	{"networkd-takes-links", Warning, "systemd-networkd takes addresses and routes from links that it configures, and may set them down.", "a file in `/etc/systemd/network` with `Unmanaged=yes`", false},
	{"networkmanager-takes-links", Warning, "NetworkManager may configure links that are not its own, and take them out of their bridge.", "a file in `/etc/NetworkManager/conf.d` with `unmanaged-devices`", false},
	{"plugin-foreign", Warning, "A runtime runs a file of which nothing is known under a plugin's name.", "`cnictl install --dir DIR --only NAME --force`", false},
	{"plugin-half-updated", Warning, "An update did not reach all files: plugins of different versions work together.", "`cnictl install --dir DIR`", false},
	{"plugin-shadowed", Warning, "A runtime runs a file that comes first in its path, and not the one that was installed.", "`cnictl install --dir DIR --only NAME --force`", false},
	{"pool-nearly-full", Warning, "Nine of ten addresses are taken. Without one left ADD fails.", "`cnictl gc NETWORK --apply`, or a larger subnet", false},
	{"rp-filter-strict", Warning, "The host drops what containers in several networks answer by their default route to what came by another.", "`sysctl -w net.ipv4.conf.all.rp_filter=2`, or the plugin `sbr`", false},

	{"backend", Info, "How a plugin does its work on this node, and why so.", "", false},
	{"kernel-unused-features", Info, "What plugins could use that this kernel lacks.", "", false},
	{"leftovers", Info, "What attachments that are gone hold until gc, addresses and rules.", "`cnictl gc NETWORK --apply`", false},
	{"network-order", Info, "Of several networks the runtime takes one for all containers.", "", false},
	{"plugin-files", Info, "The files that runtimes run, and their versions.", "", false},
}
