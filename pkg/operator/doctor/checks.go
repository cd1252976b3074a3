package doctor

import (
	"context"
	"slices"
)

// check is a look at one part of the node.
type check struct {
	at    string // what it looks at, for people
	codes []string
	look  func(ctx context.Context, s *subject) ([]Finding, error)
}

func (c check) isWanted(o Options) bool {
	if o.Codes == nil {
		return o.Check || c.at != byCheck
	}
	return slices.ContainsFunc(c.codes, func(code string) bool { return slices.Contains(o.Codes, code) })
}

// byCheck is the check that costs a call for each attachment.
const byCheck = "attachments, by CHECK"

// checks are all of them. Those that explain what others would only notice come first.
var checks = []check{
	{"files of networks", []string{"network-file-broken", "network-name-twice", "network-order"}, checkNetworkFiles},
	{"directory of networks", []string{"conf-dir-replaced"}, checkConfDir},
	{"files of plugins", []string{"plugin-missing", "plugin-noexec", "plugin-not-executable", "plugin-foreign", "plugin-shadowed", "plugin-files"}, checkPlugins},
	{"directories of plugins", []string{"plugin-half-updated"}, checkPluginDirs},
	{"features of the kernel", []string{"kernel-feature-missing", "kernel-unused-features"}, checkKernel},
	{"directories of state", []string{"state-read-only", "state-full"}, checkState},
	{"sysctls", []string{"sysctls-read-only"}, checkSysctls},
	{"DHCP daemon", []string{"dhcp-daemon-down"}, checkDHCP},
	{"addresses in etcd", []string{"etcd-unreachable", "etcd-host-name-taken", "etcd-address-lost", "etcd-lease-not-renewed", "etcd-not-told"}, checkEtcd},
	{"files of flannel's daemon", []string{"subnet-env-missing", "subnet-env-torn"}, checkSubnetFiles},
	{"addresses of containers", []string{"address-twice", "lease-lost"}, checkAddresses},
	{"addresses of bridges", []string{"bridge-other-subnet", "gateway-gone"}, checkGateways},
	{"subnets", []string{"subnets-overlap"}, checkSubnets},
	{"readiness of networks, by STATUS", []string{"network-not-ready", "kernel-feature-missing"}, checkStatus},
	{"backends", []string{"backend", "ipvs-nftables"}, checkBackends},
	{"forwarding", []string{"forwarding-off", "rp-filter-strict"}, checkForwarding},
	{"bridged packets", []string{"bridge-nf-off"}, checkBridgedPackets},
	{"packet filter", []string{"forward-drops", "docker-drops", "ufw-drops"}, checkFilter},
	{"firewalld", []string{"firewalld-no-zone", "firewalld-sources-lost"}, checkFirewalld},
	{"rules of attachments", []string{"rules-gone"}, checkRules},
	{"links", []string{"bridge-down", "bridge-port-lost", "bridge-nearly-full", "mtu-above-uplink"}, checkLinks},
	{"managers of links", []string{"networkd-takes-links", "networkmanager-takes-links"}, checkManagers},
	{"pools", []string{"pool-nearly-full"}, checkPools},
	{"caches of results", []string{"cache-torn", "network-in-two-caches"}, checkCaches},
	{"leftovers, by gc", []string{"leftovers", "gc-stopped"}, checkLeftovers},
	{"deletions", []string{"del-not-ended"}, checkDeletions},
	{byCheck, []string{"attachment-broken", "container-changed"}, checkAttachments},
}
