package flannel

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// subnet is what flannel's daemon says about this node. A pointer is nil if it does not say.
type subnet struct {
	networks    []netip.Prefix // of all nodes, IPv4 first
	own         []netip.Prefix // this node's part of them
	mtu         *int           // of the way to other nodes
	masquerades *bool          // the daemon does what ipMasq would
}

func readSubnet(path string) (subnet, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return subnet{}, err
	}
	s, wrong := parseSubnet(string(text))
	if wrong != nil {
		err = fmt.Errorf("%s is missing a valid %s", path, strings.Join(wrong, ", "))
	}
	return s, err
}

// parseSubnet reads lines KEY=VALUE, and returns the keys that are missing or have a value that can't be.
func parseSubnet(text string) (s subnet, wrong []string) {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = value
	}
	prefixes := func(keys ...string) (list []netip.Prefix) {
		for _, key := range keys {
			for _, part := range strings.FieldsFunc(values[key], func(c rune) bool { return c == ',' }) {
				p, err := netip.ParsePrefix(part)
				if err != nil {
					wrong = append(wrong, key)
				} else if p = p.Masked(); !slices.Contains(list, p) {
					list = append(list, p)
				}
			}
		}
		if list == nil {
			wrong = append(wrong, strings.Join(keys, " or "))
		}
		return list
	}
	s.networks = prefixes("FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK")
	s.own = prefixes("FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET")
	if mtu, err := strconv.ParseUint(values["FLANNEL_MTU"], 10, 16); err == nil {
		s.mtu = new(int(mtu))
	} else {
		wrong = append(wrong, "FLANNEL_MTU")
	}
	if text := values["FLANNEL_IPMASQ"]; text != "" {
		s.masquerades = new(text == "true")
	} else {
		wrong = append(wrong, "FLANNEL_IPMASQ")
	}
	return s, wrong
}
