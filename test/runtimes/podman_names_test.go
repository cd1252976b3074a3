package runtimes

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestPodmanNames has containers of a network that podman has made find each other by name and alias, over IPv4 and IPv6: podman puts dnsname into its
// networks where the plugin is installed.
func TestPodmanNames(t *testing.T) {
	tried(t, podman, findsOthers)
	p := newPodmanNode(t, dual, shop)
	for _, network := range []string{"dual", "shop"} {
		if text := p.readFile(t, conflistDir+"/"+network+".conflist"); !strings.Contains(text, `"dnsname"`) {
			t.Fatalf("podman has not put dnsname into network %s", network)
		}
	}
	p.Background(t, p.Command(netlab.Cnictl(t), "agent", "--dns"))
	web := p.podmanRun(t, "web", "--network", "dual", "--network-alias", "www")
	other := p.podmanRun(t, "other", "--network", "dual")
	p.run(t, "sed", "-i", `s/"type": "dnsname"/"type": "dnsname", "nodeServers": false/`, conflistDir+"/shop.conflist")
	far := p.podmanRun(t, "far", "--network", "shop")
	if text := far.exec(t, "cat /etc/resolv.conf"); strings.Count(text, "nameserver") != 2 {
		t.Errorf("with nodeServers false podman does not put the node's server behind the gateway's, once, as the page of dnsname says:\n%s", text)
	}
	t.Logf("resolv.conf of a container:\n%s", other.exec(t, "cat /etc/resolv.conf"))
	t.Logf("what is written down:\n%s", p.run(t, "sh", "-c", "cat /run/cnibox/names/*"))
	addresses := p.podmanAddresses(t, "web")
	for _, name := range []string{"web", "web.dns.podman", "www", web.id[:12]} {
		netlab.Eventually(t, func() error { return p.finds("other", name, addresses...) })
	}
	t.Logf("nslookup of the alias:\n%s", other.exec(t, "nslookup www"))
	for _, name := range []string{"web", "www"} {
		netlab.Eventually(t, func() error {
			return p.exec("other", "wget -q -O - http://"+name+"/ | grep -q hello || nc "+name+" 80 </dev/null")
		})
		if err := p.finds("far", name, addresses...); err == nil {
			t.Errorf("a container of another network finds %s", name)
		}
	}
	web.remove(t)
	if err := p.finds("other", "web.dns.podman", addresses...); err == nil {
		t.Error("a container that is gone is found")
	}
	other.remove(t)
	far.remove(t)
	p.run(t, "sh", "-c", "! ls -A /run/cnibox/names | grep .")
}

// exec runs a command in a container, and returns its error.
func (p *podmanNode) exec(name, command string) error {
	out, err := p.Output(exec.Command("podman", "exec", name, "sh", "-c", command+" 2>&1"))
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return nil
}

// finds looks a name up in a container, for whose addresses it has to lead to.
func (p *podmanNode) finds(container, name string, addresses ...string) error {
	out, _ := p.Output(exec.Command("podman", "exec", container, "nslookup", name))
	for _, a := range addresses {
		if !strings.Contains(out, "Address: "+a) && !strings.Contains(out, "Address 1: "+a) && !strings.Contains(out, a+"\n") {
			return fmt.Errorf("%s is not found at %s: %s", name, a, out)
		}
	}
	return nil
}
