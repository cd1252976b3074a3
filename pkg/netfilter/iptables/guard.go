package iptables

import (
	"github.com/coreos/go-iptables/iptables"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// guardRule drops what comes from elsewhere for 127.0.0.0/8. Where route_localnet is off the kernel does so itself
// (ip-sysctl.rst); with it on, containers would reach what the host serves there for itself (CVE-2020-8558). It stays: the switch
// stays on as long as the link is there.
var guardRule = []string{"!", "-i", "lo", "-d", "127.0.0.0/8", "-m", "comment", "--comment", "cnibox: route_localnet", "-j", "DROP"}

const guardTable, guardChain = "raw", "PREROUTING"

// guardLocalhost makes sure of the guard.
func guardLocalhost() error {
	t, err := guardProgram()
	if err == nil {
		err = t.AppendUnique(guardTable, guardChain, guardRule...)
	}
	if err != nil {
		return plugin.Errorf(`the kernel must have table raw of iptables (iptable_raw, or nf_tables); or set "snat" to false to do without`,
			"keep containers from 127.0.0.1 of the host: %v", err)
	}
	return nil
}

// checkGuard makes sure that the guard is there.
func checkGuard() error {
	t, err := guardProgram()
	if err != nil {
		return err
	}
	there, err := t.Exists(guardTable, guardChain, guardRule...)
	if err == nil && !there {
		return plugin.Errorf("something removed it after ADD (a flush, a restart of a firewall?): the ADD of any container with published ports makes it again",
			"iptables, table %s: the rule is missing that keeps containers from 127.0.0.1 of the host", guardTable)
	}
	return err
}

// guardProgram is found as the other programs are: runtimes have a PATH without it, or none.
func guardProgram() (*iptables.IPTables, error) {
	path, err := find("iptables")
	if err != nil {
		return nil, missing("iptables")
	}
	return iptables.New(iptables.Path(path), iptables.Timeout(lockSeconds))
}
