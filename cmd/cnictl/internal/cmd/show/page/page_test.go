package page

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

const evil = `x"'><script>alert(1)</script><img src=//evil.example onerror=alert(1)>{{.}}`

func attachment(network, id string, state node.State, addresses ...string) *node.Attachment {
	a := &node.Attachment{Network: network, ContainerID: id, IfName: "eth0", Owner: network + "/" + id + "/eth0", State: state, Why: "because"}
	for _, text := range addresses {
		a.Addresses = append(a.Addresses, netip.MustParsePrefix(text))
	}
	return a
}

func draw(t *testing.T, n *node.Node) (p *Page, text string) {
	t.Helper()
	p = New(n, n.Attachments, "host "+evil, "1.2.3", time.Unix(1700000000, 0))
	p.Findings = []doctor.Finding{{Code: "code", Severity: finding.Error, Summary: evil, Meaning: evil, Remedy: evil}}
	var w bytes.Buffer
	if err := p.Write(&w); err != nil {
		t.Fatal(err)
	}
	return p, w.String()
}

// hostile has names that want to be more than text, wherever containers and files can write one.
func hostile() *node.Node {
	a := attachment("net"+evil, "id"+evil, node.Gone, "10.0.0.2/24")
	a.Pod, a.Netns, a.MAC, a.Master, a.Cache, a.Why = "shop/"+evil, "/run/"+evil, evil, "br"+evil, evil, evil
	a.Ports = []node.Port{{HostIP: evil, HostPort: 80, ContainerPort: 8080, Protocol: evil}}
	a.Held = []node.Holding{{Plugin: evil, What: evil, Owner: evil}}
	a.HostEnd = &node.Link{Name: evil, Kind: evil, MAC: evil, Master: evil}
	since := time.Unix(1600000000, 0)
	a.Since = &since
	return &node.Node{
		Attachments: []*node.Attachment{a},
		Networks:    []*node.Network{{Name: a.Network, File: evil, Plugins: []string{evil}, Attachments: 1}, {Name: "idle" + evil, Plugins: []string{evil}}},
		Unowned:     []node.Holding{{Plugin: evil, What: evil, Network: evil, Owner: evil}}, Unread: []node.Unread{{What: evil, Why: evil}},
	}
}

// TestPageIsWhole: what is opened is closed, nothing comes from elsewhere, and names stay text.
func TestPageIsWhole(t *testing.T) {
	_, text := draw(t, hostile())
	void := []string{"meta", "link", "input", "img", "br"}
	var open []string
	scripts := 0
	for z := html.NewTokenizer(strings.NewReader(text)); ; {
		kind := z.Next()
		if kind == html.ErrorToken {
			if !errors.Is(z.Err(), io.EOF) {
				t.Fatal(z.Err())
			}
			break
		}
		token := z.Token()
		switch kind {
		case html.StartTagToken:
			if token.Data == "script" {
				scripts++
			}
			if token.Data == "img" {
				t.Errorf("there is an image: %s", token)
			}
			for _, a := range token.Attr {
				if a.Key == "src" || strings.HasPrefix(a.Key, "on") || a.Key == "href" && a.Val != "data:," && a.Val != "#findings" {
					t.Errorf("%s", token)
				}
			}
			if !slices.Contains(void, token.Data) {
				open = append(open, token.Data)
			}
		case html.EndTagToken:
			if len(open) == 0 || open[len(open)-1] != token.Data {
				t.Fatalf("</%s> closes %v", token.Data, open)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 || scripts != 1 {
		t.Errorf("open: %v; %d scripts", open, scripts)
	}
	if found := regexp.MustCompile(`https?:|url\(|@import|ZgotmplZ`).FindString(text); found != "" {
		t.Errorf("the page has %q", found)
	}
	if !strings.Contains(text, "&lt;script&gt;alert(1)") {
		t.Error("the names are not there")
	}
	if !strings.Contains(text, "script-src &#39;sha256-") {
		t.Error("the page allows any script")
	}
}

// TestSegments: attachments are drawn behind the link that leads to them; one that is gone beside others of its network.
func TestSegments(t *testing.T) {
	bridged, gone, routed, alone, beside := attachment("a", "bridged", node.Alive, "10.0.0.9/24"), attachment("a", "gone", node.Gone, "10.0.0.3/24"),
		attachment("b", "routed", node.Alive), attachment("c", "alone", node.Unknown), attachment("d", "beside", node.Alive)
	bridged.HostEnd, bridged.Master = &node.Link{Name: "veth1"}, "br0"
	bridged.Ports = []node.Port{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}}
	routed.HostEnd = &node.Link{Name: "veth2"}
	beside.Plugins, beside.Master = []string{"macvlan"}, "eth7"
	n := &node.Node{Attachments: []*node.Attachment{bridged, gone, routed, alone, beside}, Networks: []*node.Network{{Name: "a", Attachments: 2}, {Name: "idle"}}}
	p, text := draw(t, n)
	var got []string
	for _, s := range p.Segments {
		line := s.Kind + " " + s.Title + ":"
		for _, w := range s.Networks {
			for _, c := range w.Cells {
				line += " " + c.Name
			}
		}
		got = append(got, line)
	}
	want := []string{"bridge br0: gone bridged", "routed routed by the host: routed", "uplink eth7: beside", "none in the container alone: alone"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if len(p.Doors) != 1 || p.Doors[0].Cell.Name != "bridged" || len(p.Idle) != 1 || p.Idle[0].Name != "idle" || p.Counts[node.Gone] != 1 {
		t.Errorf("doors %v, idle %v, counts %v", p.Doors, p.Idle, p.Counts)
	}
	for _, part := range []string{`data-q="a gone eth0`, "8080 → 80", "networks without attachments"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing", part)
		}
	}
	if _, text = draw(t, &node.Node{}); !strings.Contains(text, "Nothing is attached") {
		t.Error("a node without attachments has no page")
	}
}

// TestDense: many cells are drawn small.
func TestDense(t *testing.T) {
	n := &node.Node{}
	for range dense + 1 {
		n.Attachments = append(n.Attachments, attachment("a", "id", node.Alive))
	}
	if p, _ := draw(t, n); len(p.Segments) != 1 || !p.Segments[0].Dense {
		t.Errorf("%+v", p.Segments)
	}
}

// TestPoolsOnce: the pools of a network that is behind two links are drawn once.
func TestPoolsOnce(t *testing.T) {
	one, two := attachment("a", "one", node.Alive), attachment("a", "two", node.Alive)
	one.HostEnd, one.Master = &node.Link{Name: "veth1"}, "br1"
	two.HostEnd, two.Master = &node.Link{Name: "veth2"}, "br2"
	pool := &node.Pool{Subnet: "10.0.0.0/24", Range: "10.0.0.1-10.0.0.254", Size: 253, Used: 250, Gone: 1}
	_, text := draw(t, &node.Node{Attachments: []*node.Attachment{one, two}, Networks: []*node.Network{{Name: "a", Attachments: 2, Pools: []*node.Pool{pool}}}})
	if n := strings.Count(text, "250 of 253 used"); n != 1 || !strings.Contains(text, `class="pool bad"`) || !strings.Contains(text, `class="used" width="98"`) || !strings.Contains(text, `class="gone" width="1"`) {
		t.Errorf("drawn %d times", n)
	}
}
