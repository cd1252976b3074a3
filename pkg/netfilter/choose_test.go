package netfilter

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

func TestChoose(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		wish         Wish
		ipvs         bool
		want, reason string
		preferred    bool
	}{
		{name: "nothing said", want: NFTables, reason: "preferred", preferred: true},
		{name: "nftables", wish: Wish{Value: "nftables"}, want: NFTables, reason: "backend says so"},
		{name: "iptables", wish: Wish{Value: "iptables"}, want: IPTables, reason: "backend says so"},
		{name: "iptables for a key", wish: Wish{IPTables: "externalSetMarkChain"}, want: IPTables, reason: "externalSetMarkChain needs it"},
		{name: "nftables for a key", wish: Wish{NFTables: "conditionsV4"}, want: NFTables, reason: "conditionsV4 needs it"},
		{name: "IPVS", ipvs: true, want: IPTables, reason: "IPVS"},
		{name: "nftables in spite of IPVS", wish: Wish{Value: "nftables"}, ipvs: true, want: NFTables, reason: "backend says so"},
		{name: "a key in spite of IPVS", wish: Wish{NFTables: "conditionsV4"}, ipvs: true, want: NFTables, reason: "conditionsV4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := netlab.NewHost(t)
			if tt.ipvs {
				h.MustRun(t, "ip", "link", "add", "kube-ipvs0", "type", "bridge") // of any kind: a dummy is not in every kernel
			}
			tt.wish.Key = "backend"
			h.Do(func() {
				c, err := tt.wish.choose()
				if err != nil || c.Backend != tt.want || !strings.Contains(c.Reason, tt.reason) || c.Preferred != tt.preferred {
					t.Errorf("%+v, %v; want %s because of %q", c, err, tt.want, tt.reason)
				}
			})
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		wish Wish
		want string
	}{
		{Wish{Value: "ebtables"}, `backend: unknown backend "ebtables"`},
		{Wish{Value: "NFTables"}, `backend: unknown backend "NFTables"`},
		{Wish{Value: "nftables", IPTables: "externalSetMarkChain"}, `backend is "nftables", but externalSetMarkChain needs iptables`},
		{Wish{Value: "iptables", NFTables: "conditionsV6"}, `backend is "iptables", but conditionsV6 needs nftables`},
		{Wish{IPTables: "conditionsV4", NFTables: "conditionsV6"}, "conditionsV4 needs iptables, but conditionsV6 needs nftables"},
	} {
		tt.wish.Key = "backend"
		err := tt.wish.Validate()
		var e *types.Error
		if !errors.As(err, &e) || e.Code != types.ErrInvalidNetworkConfig || e.Msg != tt.want || e.Details == "" {
			t.Errorf("%+v: %v; want %q", tt.wish, err, tt.want)
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	h.Do(func() {
		for _, tt := range []struct {
			wish Wish
			want string
		}{
			{Wish{Key: "backend"}, "publishes ports with nftables: backend is left out, and nftables is preferred"},
			{Wish{Key: "backend", Value: "iptables"}, "publishes ports with iptables: backend says so"},
			{Wish{Key: "backend", Value: "x"}, `publishes ports with nothing: backend: unknown backend "x"; use "nftables" or "iptables", or leave it out`},
		} {
			if got := PortMaps(spec.PortNeeds{}).Explain(tt.wish); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		}
	})
}

// TestExplainedIsUsed: ADD does its work with the backend that is said before, on every kernel.
func TestExplainedIsUsed(t *testing.T) {
	t.Parallel()
	h := netlab.NewHost(t)
	h.Do(func() {
		w := Wish{Key: "ipMasqBackend"}
		before := Masquerade(nil).Explain(w)
		m, web := Masquerade([]netip.Prefix{netip.MustParsePrefix("10.88.0.2/24")}), plugin.Key{Network: "demo", ContainerID: "web", IfName: "eth0"}
		if err := m.Add(t.Context(), w, &plugin.Request{Key: web}); err != nil {
			t.Fatal(err)
		}
		conn, err := nft.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		usesIPTables, err := iptables.On(conn, nil).Has(t.Context(), m.rules(web))
		if said := strings.HasPrefix(before, "masquerades with iptables"); err != nil || said != usesIPTables {
			t.Errorf("it is said that it %s, and iptables has it: %v, %v", before, usesIPTables, err)
		}
	})
}

func TestReasonIsInErrors(t *testing.T) {
	failed := &types.Error{Code: types.ErrTryAgainLater, Msg: "the lock is held", Details: "wait"}
	c := Choice{Backend: IPTables, Reason: "backend says so"}
	if e := plugin.AsError(c.withReason(failed)); e.Msg != "backend iptables (backend says so): the lock is held" || e.Code != failed.Code || e.Details != "wait" {
		t.Errorf("%+v", e)
	}
	c.Preferred = true
	if err := c.withReason(failed); err != error(failed) {
		t.Error(err)
	}
	if err := c.withReason(nil); err != nil {
		t.Error(err)
	}
}
