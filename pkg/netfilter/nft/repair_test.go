package nft

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

// monitored returns what changes in nf_tables while a function runs.
func monitored(t *testing.T, h *netlab.Host, do func()) string {
	t.Helper()
	cmd := h.Command("stdbuf", "-oL", "nft", "monitor")
	out, err := cmd.StdoutPipe()
	must(t, err)
	h.Background(t, cmd)
	said := make(chan string, 1000)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said <- lines.Text()
		}
	}()
	// A table is made again and again until the program says so, as it may not listen yet.
	netlab.Until(t, "nft monitor to listen", func() bool {
		h.MustRun(t, "sh", "-c", "nft add table inet begin; nft delete table inet begin")
		return len(said) > 0
	})
	do()
	h.MustRun(t, "sh", "-c", "nft add table inet finish; nft delete table inet finish")
	var text strings.Builder
	for {
		select {
		case line := <-said:
			if strings.Contains(line, "finish") {
				return text.String()
			}
			text.WriteString(line + "\n")
		case <-time.After(netlab.Patience):
			t.Fatalf("nft monitor does not say what happens:\n%s", text.String())
		}
	}
}

// TestRepairLeavesTheRest adds what is missing of an attachment, and touches nothing else. It leaves an element that no attachment has, and says where it is.
func TestRepairLeavesTheRest(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	c := open(t, h)
	wants := ToPublish(behind("cni0", portMaps(t, "tcp/8080=10.88.0.2:80", "tcp/8081=10.88.0.2:81")))
	h.Do(func() { must(t, c.Add(ctx, keyOf("web"), wants)) })
	before := listing(t, h)
	const port = "ports4_v1 { tcp . 8080"
	for harm, missing := range map[string]string{
		"delete element inet cnibox ports4_v1 { tcp . 8080 }": port,
		"flush map inet cnibox owners_v1":                     "owners_v1",
		`delete element inet cnibox ports4_v1 { tcp . 8080 }; add element inet cnibox ports4_v1 { tcp . 8080 comment "net/web/eth0" : 10.88.0.9 . 80 }`: port,
	} {
		h.MustRun(t, "nft", harm)
		changes := monitored(t, h, func() { h.Do(func() { must(t, c.Repair(ctx, keyOf("web"), wants)) }) })
		for line := range strings.Lines(changes) {
			if strings.Contains(line, " element ") && !strings.Contains(line, missing) {
				t.Errorf("%s: the repair changes what is right: %s", harm, line)
			}
		}
		if after := listing(t, h); after != before {
			t.Errorf("after the repair:\n%s\nbefore:\n%s", after, before)
		}
	}
	h.MustRun(t, "nft", "delete element inet cnibox ports4_v1 { tcp . 8080 }; add element inet cnibox ports4_v1 { tcp . 8080 : 10.88.0.99 . 80 }")
	h.Do(func() {
		err := c.Repair(ctx, keyOf("web"), wants)
		if e := plugin.AsError(err); err == nil || !strings.Contains(e.Msg, "an element for tcp/8080 is in ports4_v1 that no attachment has") || !strings.Contains(e.Details, "nft list map inet cnibox ports4_v1") {
			t.Errorf("error %v", err)
		}
		if err := c.Check(keyOf("web"), wants); err == nil || !strings.Contains(err.Error(), "belongs to no attachment") {
			t.Errorf("CHECK: %v", err)
		}
	})
}

// TestPortOfTwoInterfaces gives a port to the first of a container's interfaces that asks for it, and to the other one when that has gone.
func TestPortOfTwoInterfaces(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	c := open(t, h)
	first, second := keyOf("web"), keyOf("web")
	second.Network, second.IfName = "other", "eth1"
	one := ToPublish(behind("cni0", portMaps(t, "tcp/8080=10.88.0.2:80")))
	two := ToPublish(behind("cni0", portMaps(t, "tcp/8080=10.89.0.2:80")))
	h.Do(func() {
		must(t, c.Add(ctx, first, one))
		must(t, c.Add(ctx, second, two))
		must(t, c.Repair(ctx, second, two))
		must(t, c.Check(first, one))
		must(t, c.Check(second, two))
		delPorts(t, c, first)
		settle(t, h)
		if err := c.Check(second, two); err == nil || !strings.Contains(err.Error(), "tcp/8080 is not in") {
			t.Errorf("nobody has the port: %v", err)
		}
		must(t, c.Repair(ctx, second, two))
		must(t, c.Check(second, two))
	})
}
