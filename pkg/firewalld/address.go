package firewalld

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultBus is where the system bus is unless the environment says otherwise.
const defaultBus = "unix:path=/run/dbus/system_bus_socket"

// busSockets returns the sockets of the system bus, to be tried in turn.
func busSockets() ([]*unix.SockaddrUnix, error) {
	addresses := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS")
	if addresses == "" {
		addresses = defaultBus
	}
	return parseAddresses(addresses)
}

// parseAddresses reads addresses of a bus (D-Bus specification, "Server
// Addresses"), such as "unix:path=/run/dbus/system_bus_socket;tcp:host=…",
// without those that are not of a unix socket.
func parseAddresses(text string) (sockets []*unix.SockaddrUnix, err error) {
	for address := range strings.SplitSeq(text, ";") {
		transport, options, _ := strings.Cut(address, ":")
		if transport != "unix" {
			continue
		}
		for option := range strings.SplitSeq(options, ",") {
			key, value, _ := strings.Cut(option, "=")
			name, ok := unescape(value)
			if !ok || name == "" || strings.ContainsRune(name, 0) {
				continue
			}
			switch key {
			case "path":
				sockets = append(sockets, &unix.SockaddrUnix{Name: name})
			case "abstract":
				sockets = append(sockets, &unix.SockaddrUnix{Name: "@" + name})
			}
		}
	}
	if len(sockets) == 0 {
		return nil, errors.New("no address of a unix socket in DBUS_SYSTEM_BUS_ADDRESS=" + strconv.Quote(text))
	}
	return sockets, nil
}

// unescape replaces %xx by the byte.
func unescape(s string) (string, bool) {
	before, behind, found := strings.Cut(s, "%")
	if !found {
		return s, true
	}
	out := []byte(before)
	for found {
		if len(behind) < 2 {
			return "", false
		}
		b, err := strconv.ParseUint(behind[:2], 16, 8)
		if err != nil {
			return "", false
		}
		out = append(out, byte(b))
		before, behind, found = strings.Cut(behind[2:], "%")
		out = append(out, before...)
	}
	return string(out), true
}
