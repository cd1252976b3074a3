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
	h.MustRun(t, "nft", "add", "table", "inet", "finish")
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

// TestRepairLeavesTheRest adds what is missing of an attachment, and touches nothing else.
func TestRepairLeavesTheRest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, harm, missing string
	}{
		{"a port", "delete element inet cnibox ports4_v1 { tcp . 8080 }", "ports4_v1 { tcp . 8080"},
		{"an owner's record", "flush map inet cnibox owners_v1", "owners_v1"},
		{"a port that leads elsewhere", "delete element inet cnibox ports4_v1 { tcp . 8080 }; add element inet cnibox ports4_v1 { tcp . 8080 comment \"net/web/eth0\" : 10.88.0.9 . 80 }",
			"ports4_v1 { tcp . 8080"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			addLink(t, h, "cni0")
			c := open(t, h)
			wants := ToPublish(behind("cni0", portMaps(t, "tcp/8080=10.88.0.2:80", "tcp/8081=10.88.0.2:81")))
			h.Do(func() { must(t, c.Add(ctx, keyOf("web"), wants)) })
			before := listing(t, h)
			for _, command := range strings.Split(tt.harm, "; ") {
				h.MustRun(t, "nft", command)
			}
			changes := monitored(t, h, func() {
				h.Do(func() {
					must(t, c.Repair(ctx, keyOf("web"), wants))
					must(t, c.Check(keyOf("web"), wants))
				})
			})
			for line := range strings.Lines(changes) {
				if strings.Contains(line, " element ") && !strings.Contains(line, tt.missing) {
					t.Errorf("it changes what is right: %s", line)
				}
			}
			if after := listing(t, h); after != before {
				t.Errorf("after the repair:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// TestRepairTakesNothing leaves what another attachment has by now.
func TestRepairTakesNothing(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	c := open(t, h)
	mine := ToMasquerade(prefixes("10.88.0.2/24"))
	must(t, c.Add(ctx, keyOf("late"), mine))
	before := listing(t, h)
	if err := c.Repair(ctx, keyOf("early"), mine); err == nil || !strings.Contains(err.Error(), "10.88.0.2 is net/late/eth0's") {
		t.Errorf("error %v", err)
	}
	if after := listing(t, h); after != before {
		t.Errorf("after the repair:\n%s\nbefore:\n%s", after, before)
	}
}

// TestRepairOfNobodys leaves an element that no attachment has, and says where it is.
func TestRepairOfNobodys(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	addLink(t, h, "cni0")
	c := open(t, h)
	ports := ToPublish(behind("cni0", portMaps(t, "tcp/8080=10.88.0.2:80")))
	h.Do(func() { must(t, c.Add(ctx, keyOf("web"), ports)) })
	h.MustRun(t, "nft", "delete element inet cnibox ports4_v1 { tcp . 8080 }; add element inet cnibox ports4_v1 { tcp . 8080 : 10.88.0.99 . 80 }")
	h.Do(func() {
		err := c.Repair(ctx, keyOf("web"), ports)
		if e := plugin.AsError(err); err == nil || !strings.Contains(e.Msg, "an element for tcp/8080 is in ports4_v1 that no attachment has") || !strings.Contains(e.Details, "nft list map inet cnibox ports4_v1") {
			t.Errorf("error %v", err)
		}
		if err := c.Check(keyOf("web"), ports); err == nil || !strings.Contains(err.Error(), "belongs to no attachment") {
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
	if got := listing(t, h); !strings.Contains(got, `comment "other/web/eth1" : 10.89.0.2 . 80`) {
		t.Errorf("after the repair:\n%s", got)
	}
}
