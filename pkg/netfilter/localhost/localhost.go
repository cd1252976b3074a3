// Package localhost lets processes of the host reach containers behind a link through ports published on 127.0.0.1.
//
// The sysctl route_localnet makes the kernel route packets from and to 127.0.0.0/8 by a link, which it otherwise refuses as martians. It
// works both ways: without a guard in the packet filter, whoever is on the link reaches services of the host that listen on 127.0.0.1
// (CVE-2020-8558).
package localhost

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

func key(link string) string { return "net/ipv4/conf/" + link + "/route_localnet" }

// Allow lets them. The guard must be in place before.
func Allow(link string) error { return sysctl.Set(key(link), "1") }

// Forbid takes that back. A link that is gone is no error.
func Forbid(link string) error {
	err := sysctl.Set(key(link), "0")
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// IsAllowed reports whether a link lets them; the error is unix.ENOENT when there is no such link.
func IsAllowed(link string) (bool, error) {
	value, err := sysctl.Get(key(link))
	return value == "1", err
}

// Check makes sure that a link lets them.
func Check(link string) error {
	if allowed, err := IsAllowed(link); err == nil && allowed {
		return nil
	}
	return plugin.Errorf(plugin.RepairRemedy,
		"route_localnet of link %s is not set, so that 127.0.0.1 does not reach published ports", link)
}
