package lint

import (
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

var (
	sysctlOfHost = codes.Declare(finding.Code{Name: "sysctl-of-host", Severity: finding.Error,
		Meaning: "The kernel has one value of this for the whole host, and lets no container set it: ADD fails.",
		Remedy:  "a file in `/etc/sysctl.d` of the host"})
	ipv6SwitchedOff = codes.Declare(finding.Code{Name: "ipv6-switched-off", Severity: finding.Warning,
		Meaning: "The network hands out IPv6 addresses, and a sysctl of a plugin behind takes them away again.",
		Remedy:  "one of the two left out"})
)

// HostSysctls are those below net that no network namespace but the host's can set, whichever modules there are: TestHostSysctls asks the kernel.
var HostSysctls = strings.Fields(`
	net/core/bpf_jit_enable net/core/bpf_jit_harden net/core/bpf_jit_kallsyms net/core/bpf_jit_limit net/core/busy_poll net/core/busy_read
	net/core/default_qdisc net/core/dev_weight net/core/dev_weight_rx_bias net/core/dev_weight_tx_bias net/core/devconf_inherit_init_net
	net/core/fb_tunnels_only_for_init_net net/core/flow_limit_cpu_bitmap net/core/flow_limit_table_len net/core/gro_normal_batch
	net/core/high_order_alloc_disable net/core/max_skb_frags net/core/mem_pcpu_rsv net/core/message_burst net/core/message_cost
	net/core/netdev_budget net/core/netdev_budget_usecs net/core/netdev_max_backlog net/core/netdev_rss_key net/core/netdev_tstamp_prequeue
	net/core/netdev_unregister_timeout_secs net/core/rmem_default net/core/rmem_max net/core/rps_sock_flow_entries net/core/skb_defer_max
	net/core/warnings net/core/wmem_default net/core/wmem_max
	net/ipv4/inet_peer_maxttl net/ipv4/inet_peer_minttl net/ipv4/inet_peer_threshold net/ipv4/route/error_burst net/ipv4/route/error_cost
	net/ipv4/route/gc_elasticity net/ipv4/route/gc_interval net/ipv4/route/gc_thresh net/ipv4/route/gc_timeout net/ipv4/route/max_size
	net/ipv4/tcp_low_latency net/ipv4/tcp_max_orphans net/ipv4/tcp_mem net/ipv4/udp_mem net/ipv6/mld_max_msf
	net/netfilter/nf_conntrack_buckets net/netfilter/nf_conntrack_expect_max net/netfilter/nf_conntrack_max net/nf_conntrack_max`)

// checkSysctls looks for sysctls that a container can't have, or that are against its network's own addresses.
func (f *file) checkSysctls(p *part) {
	sysctls := p.get("sysctl")
	if !p.reads("sysctl") || sysctls == nil {
		return
	}
	for i := range sysctls.members {
		m := &sysctls.members[i]
		key, err := sysctl.ParseKey(m.name)
		if err != nil {
			continue // which is an error of the plugin's
		}
		link, isOff := strings.CutSuffix(strings.TrimPrefix(key.Path(), "net/ipv6/conf/"), "/disable_ipv6")
		switch {
		case slices.Contains(HostSysctls, key.Path()):
			f.report(sysctlOfHost, m.key, "nothing", nil, "%s is the host's: no container can set it", m.name)
		case isOff && m.value.text == "1" && link != "lo" && link != "default" && f.hasIPv6(p):
			f.report(ipv6SwitchedOff, m.key, "nothing", nil, "%s takes the IPv6 addresses away that the network hands out", m.name)
		}
	}
}
