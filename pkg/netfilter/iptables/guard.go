package iptables

import (
	"fmt"

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
	t, err := iptables.New(iptables.Timeout(lockSeconds))
	if err == nil {
		err = t.AppendUnique(guardTable, guardChain, guardRule...)
	}
	if err != nil {
		return fmt.Errorf("keep containers from 127.0.0.1 of the host: %w", err)
	}
	return nil
}

// checkGuard tells whether the guard is missing.
func checkGuard() error {
	t, err := iptables.New(iptables.Timeout(lockSeconds))
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
