package reference

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/pkg/held"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestAttachmentHash(t *testing.T) {
	if got, want := attachmentHash(key("net1/cid1/eth0")), "8e48f37d5de60467-0b65a318f52e521b"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestMasquerade(t *testing.T) {
	t.Parallel()
	long := "a/" + strings.Repeat("0123456789abcdef", 4) + "-whose-comment-is-cut/eth0"
	for _, tt := range []struct {
		name         string
		before, then []string // attachments that have rules; none: no table
		del          string
		gc           []string // valid; nil: no GC
	}{
		{name: "the last one", before: []string{"a/1/eth0"}, del: "a/1/eth0"},
		{name: "one of several", before: []string{"a/1/eth0", "a/1/eth1", "a/2/eth0", "b/1/eth0"}, del: "a/1/eth0", then: []string{"", "a/1/eth1", "a/2/eth0", "b/1/eth0"}},
		{name: "a long name", before: []string{long}, del: long},
		{name: "another one", before: []string{"a/1/eth0"}, del: "a/1/eth1", then: []string{"a/1/eth0"}},
		{name: "GC of all", before: []string{"a/1/eth0", "a/2/eth0"}, gc: []string{}},
		{name: "GC with valid ones", before: []string{"a/1/eth0", "a/2/eth0", long}, gc: []string{"a/1/eth0", "a/2/eth1", long}, then: []string{"a/1/eth0", "", long}},
		{name: "GC leaves other networks", before: []string{"b/1/eth0", "a/1/eth0"}, gc: []string{}, then: []string{"b/1/eth0"}},
		{name: "GC with all valid", before: []string{"a/1/eth0"}, gc: []string{"a/1/eth0"}, then: []string{"a/1/eth0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			load(t, h, masqueraded(tt.before...))
			err := on(t, h, func(c *nft.Conn) error {
				if tt.gc != nil {
					r := valid("a", tt.gc...)
					return held.GC(ctx, r, MasqueradeRules{r})
				}
				return MasqueradeRules{request(tt.del)}.Del(ctx, c, nil)
			})
			if err != nil {
				t.Error(err)
			}
			same(t, h, masqueraded(tt.then...))
		})
	}
}

func TestConcurrentDel(t *testing.T) {
	t.Parallel()
	const n = 64
	h := netlab.NewHost(t)
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("a/%d/eth0", i))
	}
	load(t, h, masqueraded(all...))
	var wg sync.WaitGroup
	for _, a := range all {
		wg.Go(func() {
			if err := on(t, h, func(c *nft.Conn) error { return MasqueradeRules{request(a)}.Del(ctx, c, nil) }); err != nil {
				t.Errorf("%s: %v", a, err)
			}
		})
	}
	wg.Wait()
	same(t, h, masqueraded())
}
