// Package link has what vishvananda/netlink does not: lists that are whole, deleting many links at once, several changes in one message,
// and waiting for what the kernel does a moment later.
package link

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MostPorts is how many ports the kernel gives to a bridge (BR_MAX_PORTS of net/bridge/br_private.h).
const MostPorts = 1023

// IsNotFound reports whether an error says that there is no such link.
func IsNotFound(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO)
}

// IgnoreNotFound returns an error unless it says that there is no such link.
func IgnoreNotFound(err error) error {
	if IsNotFound(err) {
		return nil
	}
	return err
}

// ValidateName refuses a name that no link can have, or no result.
func ValidateName(name string) error {
	switch {
	case name == "":
		return errors.New("interface name is empty")
	case len(name) >= unix.IFNAMSIZ:
		return errors.New("interface name should be less than 16 characters")
	case name == "." || name == "..":
		return errors.New("interface name is . or .., which are directories")
	case !utf8.ValidString(name):
		return errors.New("interface name is no UTF-8, which results are printed in")
	case strings.Contains(name, "%"):
		return errors.New("interface name contains %, which the kernel takes for a pattern")
	case strings.ContainsAny(name, "/:") || strings.ContainsFunc(name, unicode.IsSpace):
		return errors.New("interface name contains / or : or whitespace characters")
	}
	return nil
}

// LeadsInto reports whether a link of the host is a veth whose other end is in a namespace.
func LeadsInto(outside netlink.Link, n ns.NetNS) (bool, error) {
	id, err := netlink.GetNetNsIdByFd(int(n.Fd()))
	if err != nil {
		return false, fmt.Errorf("look up the id of %s: %w", n.Path(), err)
	}
	return id >= 0 && outside.Type() == "veth" && outside.Attrs().NetNsID == id, nil
}
