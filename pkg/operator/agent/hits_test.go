package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/operator/agent/watch"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
)

func TestHitsOf(t *testing.T) {
	named := func(id string) *node.Attachment {
		return &node.Attachment{Network: "net", ContainerID: id, IfName: "eth0"}
	}
	port, behind, limited, other := named("port"), named("behind"), named("limited"), named("other")
	port.HostEnd, port.Master = &node.Link{Name: "veth1"}, "demo0"
	behind.Master = "eth0"
	limited.Result = &node.Result{Result: &types100.Result{Interfaces: []*types100.Interface{{Name: "bwp1"}, {Name: "veth9", Sandbox: "/run/netns/limited"}}}}
	n := &node.Node{Attachments: []*node.Attachment{port, behind, limited, other}}
	link := func(name string) watch.Hit { return watch.Hit{Kind: watch.Link, Link: name} }
	for _, c := range []struct {
		hits  hits
		want  string
		isAll bool
	}{
		{hits{link("veth1")}, "port", false},
		{hits{link("demo0")}, "port", false},
		{hits{link("demo0.100")}, "port", false},
		{hits{link("eth0"), link("bwp1")}, "behind limited", false},
		{hits{link("veth9")}, "", false}, // that name is the container's
		{hits{link("")}, "", false},
		{hits{{Kind: watch.Inside, NSID: 7}}, "", false},
		{hits{link("veth1"), {Kind: watch.Filter}}, "port behind limited other", true},
	} {
		list, isAll := c.hits.attachments(n)
		var names []string
		for _, a := range list {
			names = append(names, a.ContainerID)
		}
		if got := strings.Join(names, " "); got != c.want || isAll != c.isAll {
			t.Errorf("%+v: %q, all %v; want %q, %v", c.hits, got, isAll, c.want, c.isAll)
		}
	}
}

func TestHitsAreBounded(t *testing.T) {
	var h hits
	for i := range 10 * mostHits {
		h = h.with(hits{{Kind: watch.Link, Link: fmt.Sprint("veth", i%(2*mostHits))}})
		if len(h) > mostHits {
			t.Fatalf("%d hits wait", len(h))
		}
	}
	if _, isAll := h.attachments(&node.Node{}); !isAll || h.isUrgent() {
		t.Error("all is to be looked at, and is not urgent")
	}
	if h := h.with(hits{{Kind: watch.Filter}}); !h.isUrgent() {
		t.Error("a flush is urgent")
	}
	inside := hits{}
	for i := range 10 * mostHits {
		inside = inside.with(hits{{Kind: watch.Inside, NSID: 7, What: fmt.Sprint(i)}})
	}
	if len(inside) != 1 {
		t.Errorf("one container made %d hits", len(inside))
	}
	for what, isOwn := range map[string]bool{start: true, everything: true, "table inet cnibox was deleted": false} {
		if (hits{{What: what}}).isOwn() != isOwn {
			t.Errorf("%s: %v", what, !isOwn)
		}
	}
	once := hits{}.with(hits{{What: "a", By: "nft (pid 1)"}, {What: "a", By: "nft (pid 1)"}, {What: "b"}})
	if got := once.text(); got != "a by nft (pid 1); b" {
		t.Errorf("%q", got)
	}
	for i := range 9 {
		once = append(once, watch.Hit{What: fmt.Sprint(i)})
	}
	if got := once.text(); !strings.HasSuffix(got, "; 2; and 6 more") {
		t.Errorf("%q", got)
	}
}

func TestCalm(t *testing.T) {
	a := &node.Attachment{Network: "net", ContainerID: "web", IfName: "eth0"}
	report := &repair.Report{Network: "net", ContainerID: "web", IfName: "eth0"}
	var c calm
	firsts := 0
	isHot := func(at time.Time) bool {
		list, hot, first := c.leave([]*node.Attachment{a}, at)
		if len(list)+len(hot) != 1 {
			t.Errorf("%d to look at, %d to wait", len(list), len(hot))
		}
		firsts += len(first)
		return len(hot) == 1
	}
	for i := range often {
		if isHot(time.Now()) {
			t.Errorf("it has to wait after %d repairs", i)
		}
		c.note(report)
	}
	now := time.Now()
	if hot := []bool{isHot(now), isHot(now), isHot(now.Add(pause))}; !slices.Equal(hot, []bool{true, true, false}) {
		t.Error("after many repairs it has to wait for a pause, and no longer")
	}
	if firsts != 1 {
		t.Errorf("it has to wait for the first time %d times", firsts)
	}
	if len(c.waiting(now)) != 1 || len(c.waiting(now.Add(2*while))) != 0 {
		t.Errorf("%q wait now, and %q later", c.waiting(now), c.waiting(now.Add(2*while)))
	}
	c.mended[keyOf(report)][0] = now.Add(-while)
	if isHot(now) {
		t.Error("repairs that are long ago count")
	}
	c.note(report)
	if got := len(c.mended[keyOf(report)]); got != often {
		t.Errorf("%d times are kept", got)
	}
	c.forget(namesOf(&node.Node{Attachments: []*node.Attachment{a}}))
	if len(c.mended) != 1 {
		t.Error("what is there is forgotten")
	}
	c.forget(nil)
	if len(c.mended)+len(c.slower) != 0 {
		t.Error("what is gone is kept")
	}
}

func TestSaidOnce(t *testing.T) {
	var s said
	if isNew := []bool{s.add("a", "x"), s.add("a", "x"), s.add("a", "y"), s.add("b", "y")}; !slices.Equal(isNew, []bool{true, false, true, true}) {
		t.Error("what is new is said, once")
	}
	if dropped := []bool{s.has("a", "y"), s.has("a", "x"), s.drop("a"), s.drop("a")}; !slices.Equal(dropped, []bool{true, false, true, false}) || len(s.all()) != 1 {
		t.Errorf("%v is kept", s.all())
	}
	s.forget(nil)
	if len(s.all()) != 0 {
		t.Errorf("%v is kept of what is gone", s.all())
	}
}
