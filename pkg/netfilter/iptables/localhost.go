package iptables

import (
	"fmt"

	"github.com/coreos/go-iptables/iptables"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// guardRule drops what comes from elsewhere for 127.0.0.0/8. Where route_localnet is off the kernel does so itself
// (ip-sysctl.rst); with it on, containers would reach what the host serves there for itself (CVE-2020-8558). It stays: the switch
// stays on as long as the link is there.
var guardRule = []string{"!", "-i", "lo", "-d", "127.0.0.0/8", "-m", "comment", "--comment", "cnibox: route_localnet", "-j", "DROP"}

const guardTable, guardChain = "raw", "PREROUTING"

// allowLocalhost has the host reach ports behind a link by 127.0.0.1, when the guard is there.
func allowLocalhost(link string) error {
	t, err := guardProgram()
	if err == nil {
		err = t.AppendUnique(guardTable, guardChain, guardRule...)
	}
	if err != nil {
		return plugin.Errorf(`the kernel must have table raw of iptables (iptable_raw, or nf_tables); or set "snat" to false to do without`,
			"keep containers from 127.0.0.1 of the host: %v", err)
	}
	return netfilter.AllowLocalhost(link)
}

// checkLocalhost makes sure of both. The reference plugin has no guard.
func checkLocalhost(link string, isGuarded bool) error {
	if isGuarded {
		t, err := guardProgram()
		if err != nil {
			return err
		}
		if there, err := t.Exists(guardTable, guardChain, guardRule...); err != nil || !there {
			return plugin.Errorf("something removed it after ADD (a flush, a restart of a firewall?): the ADD of any container with published ports makes it again",
				"iptables, table %s: the rule is missing that keeps containers from 127.0.0.1 of the host", guardTable)
		}
	}
	if allowed, err := netfilter.LocalhostAllowed(link); err != nil || !allowed {
		return plugin.Errorf(fmt.Sprintf("set it with `sysctl -w net.ipv4.conf.%s.route_localnet=1`, or restart the container", link),
			"route_localnet of link %s is not set, so that 127.0.0.1 does not reach published ports", link)
	}
	return nil
}

// guardProgram is found as the other programs are: runtimes have a PATH without it, or none.
func guardProgram() (*iptables.IPTables, error) {
	path, err := find("iptables")
	if err != nil {
		return nil, missing("iptables")
	}
	return iptables.New(iptables.Path(path), iptables.Timeout(lockSeconds))
}
