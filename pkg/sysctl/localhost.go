package sysctl

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// routeLocalnet is the sysctl that makes the kernel route packets from and to 127.0.0.0/8 by a link, which it otherwise refuses as martians.
// It works both ways: without a guard in the packet filter, whoever is on the link reaches services of the host that listen on 127.0.0.1
// (CVE-2020-8558).
func routeLocalnet(link string) string { return "net/ipv4/conf/" + link + "/route_localnet" }

// AllowLocalhost lets processes of the host reach containers behind a link through ports published on 127.0.0.1. The guard must be in
// place before.
func AllowLocalhost(link string) error { return Set(routeLocalnet(link), "1") }

// ForbidLocalhost takes that back. A link that is gone is no error.
func ForbidLocalhost(link string) error {
	err := Set(routeLocalnet(link), "0")
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// AllowsLocalhost reports whether a link lets them; the error is unix.ENOENT when there is no such link.
func AllowsLocalhost(link string) (bool, error) {
	value, err := Get(routeLocalnet(link))
	return value == "1", err
}

// CheckLocalhost makes sure that a link lets them.
func CheckLocalhost(link string) error {
	if allowed, err := AllowsLocalhost(link); err == nil && allowed {
		return nil
	}
	return plugin.Errorf(plugin.RepairRemedy,
		"route_localnet of link %s is not set, so that 127.0.0.1 does not reach published ports", link)
}
