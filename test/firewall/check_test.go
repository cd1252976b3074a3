package firewall

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestCheckFindsOneMissing takes away what makes one of two published ports work,
// of one family. CHECK has to find that, however alike the other one's rule is.
func TestCheckFindsOneMissing(t *testing.T) {
	for _, b := range backends {
		for _, f := range families {
			t.Run(b.name+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				host := newHost(t, b)
				conflist := network(b, podsBridge)
				c := attach(t, host, conflist, "web", port{8080, 80, "tcp", ""}, port{8081, 80, "tcp", ""})
				check := func() error { return host.CheckList(conflist, c.RuntimeConf(c.caps)) }
				if err := check(); err != nil {
					t.Fatalf("as ADD left it: %v", err)
				}
				unpublish(t, host, b, f, 8081)
				if err := check(); err == nil || !strings.Contains(err.Error(), "8081") {
					t.Errorf("without port 8081 CHECK says %v", err)
				}
				if err := c.del(host, conflist); err != nil {
					t.Errorf("DEL: %v", err)
				}
			})
		}
	}
}

// unpublish removes the packet filter's DNAT of a TCP port.
func unpublish(t *testing.T, host *netlab.Host, b backend, f family, port int) {
	t.Helper()
	if b.flavour == "" {
		name, _ := portsMap(t, host, f)
		host.MustRun(t, "nft", "delete", "element", "inet", "cnibox", name, fmt.Sprintf("{ tcp . %d }", port))
		return
	}
	program := iptablesProgram(b, f)
	chain := regexp.MustCompile(`CNI-DN-[0-9a-f]+`).FindString(host.MustRun(t, program, "-t", "nat", "-S"))
	number := 0 // of the rule, for -D by rule may take another that looks the same
	for line := range strings.Lines(host.MustRun(t, program, "-t", "nat", "-S", chain)) {
		if !strings.HasPrefix(line, "-A ") {
			continue
		}
		number++
		if strings.Contains(line, "--dport "+strconv.Itoa(port)+" ") && strings.Contains(line, "-j DNAT ") {
			host.MustRun(t, program, "-t", "nat", "-D", chain, strconv.Itoa(number))
			return
		}
	}
	t.Fatalf("%s has no DNAT of port %d in %s", program, port, chain)
}
