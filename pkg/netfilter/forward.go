package netfilter

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/netfilter/firewalld"
	"github.com/cnibox/cnibox/pkg/netfilter/iptables"
	"github.com/cnibox/cnibox/pkg/netfilter/nft"
	"github.com/cnibox/cnibox/pkg/netfilter/spec"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Forward lets containers' packets be forwarded by a host that otherwise drops them, and keeps containers of different networks
// apart. What keeps them apart is in place before anything is let through.
//
// It has a third backend, firewalld, which the addresses go to if the configuration says so, or says nothing and firewalld runs. Policies
// are not up to it, as it has none like ours.
type Forward struct {
	spec.ForwardNeeds
	Zone firewalld.Zone // "" if the configuration has another backend
}

// Add gives it to an attachment, in place of what that has.
func (f Forward) Add(ctx context.Context, w Wish, key plugin.Key) error {
	inZone, err := usesZone(ctx, w)
	if err != nil {
		return err
	}
	if !inZone {
		return add(ctx, w, key, f)
	}
	if f.Ingress != spec.Open {
		if err := add(ctx, Wish{Key: w.Key}, key, f.policy()); err != nil {
			return err
		}
	}
	if err = f.Zone.Add(ctx, key, f.Addrs); w.mayReplace(err) {
		return add(ctx, w, key, f)
	}
	return err
}

// Check compares what is there with what Add makes.
func (f Forward) Check(ctx context.Context, w Wish, key plugin.Key) error {
	inZone, err := usesZone(ctx, w)
	if err != nil {
		return err
	}
	if !inZone {
		return check(ctx, w, key, f)
	}
	err = f.Zone.Check(ctx, key, f.Addrs)
	if err != nil && w.Value == "" && check(ctx, w, key, f) == nil { // firewalld has refused it
		return nil
	}
	if err != nil || f.Ingress == spec.Open {
		return err
	}
	return check(ctx, Wish{Key: w.Key}, key, f.policy())
}

// Repair gives the attachment what is missing of it.
func (f Forward) Repair(ctx context.Context, w Wish, key plugin.Key) error {
	inZone, err := usesZone(ctx, w)
	if err != nil {
		return err
	}
	if !inZone {
		return repair(ctx, w, key, f)
	}
	if f.Ingress != spec.Open {
		if err := repair(ctx, Wish{Key: w.Key}, key, f.policy()); err != nil {
			return err
		}
	}
	if err = f.Zone.Repair(ctx, key, f.Addrs); w.mayReplace(err) {
		return repair(ctx, w, key, f)
	}
	return err
}

// Available reports whether the host has what Add needs.
func (f Forward) Available(ctx context.Context, w Wish) error {
	inZone, err := usesZone(ctx, w)
	if err != nil {
		return err
	}
	if !inZone {
		return available(w, f)
	}
	running, err := firewalld.Running(ctx)
	if err == nil && !running {
		err = types.NewError(types.ErrPluginNotAvailable, `backend is "firewalld", and firewalld is not running`, "start firewalld, or leave the key out")
	}
	if err != nil || f.Ingress == spec.Open {
		return err
	}
	return available(Wish{Key: w.Key}, f)
}

// Explain says what lets packets pass, and why: a sentence, and one more if something else keeps bridges apart.
func (f Forward) Explain(ctx context.Context, w Wish) []string {
	inZone, err := usesZone(ctx, w)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("lets packets pass with nothing: %v", err)}
	case !inZone:
		return []string{explain("lets packets pass", w, f)}
	}
	reason := "backend says so"
	if w.Value == "" {
		reason = "backend is left out, and firewalld is running"
	}
	list := []string{fmt.Sprintf("lets packets pass with zone %s of firewalld: %s", f.Zone, reason)}
	if f.Ingress != spec.Open {
		list = append(list, explain("keeps bridges apart", Wish{Key: w.Key}, f))
	}
	return list
}

// usesZone reports whether addresses go to a zone of firewalld.
func usesZone(ctx context.Context, w Wish) (bool, error) {
	if w.Value != "" {
		return w.Value == Firewalld, nil
	}
	running, err := firewalld.Running(ctx)
	if w.mayReplace(err) {
		return false, nil
	}
	return running, err
}

// mayReplace reports whether another backend is to do what firewalld has refused.
func (w Wish) mayReplace(err error) bool {
	return w.Value == "" && errors.Is(err, firewalld.ErrRefused)
}

// policy is what is up to the other backends when addresses go to a zone.
func (f Forward) policy() Forward {
	f.Addrs = nil
	return f
}

func (Forward) purpose() nft.Purpose { return nft.Forwarding }

// marked has iptables accept what nftables marks, which can't accept a packet for good.
func (f Forward) marked(c *nft.Conn) iptables.Marked {
	return iptables.Marked{Mark: nft.ForwardMark, Addrs: f.Addrs, AdminChain: f.AdminChain, Conn: c}
}

func (f Forward) addElements(ctx context.Context, c *nft.Conn, key plugin.Key) error {
	if err := c.Add(ctx, key, nft.ToForward(f.ForwardNeeds)); err != nil {
		return err
	}
	return f.marked(c).Accept(ctx)
}

func (f Forward) repairElements(ctx context.Context, c *nft.Conn, key plugin.Key) error {
	return errors.Join(c.Repair(ctx, key, nft.ToForward(f.ForwardNeeds)), f.marked(c).Accept(ctx))
}

func (f Forward) checkElements(ctx context.Context, c *nft.Conn, key plugin.Key) error {
	if err := c.Check(key, nft.ToForward(f.ForwardNeeds)); err != nil {
		return err
	}
	return f.marked(c).Check(ctx)
}

func (f Forward) rules(key plugin.Key) iptables.Rules {
	return iptables.ForwardRules(key, f.ForwardNeeds)
}

func (Forward) tables() []nftables.Table {
	return append(iptables.Forwarding.Tables(), nft.Forwarding.Table)
}

// del leaves the rules of iptables that accept what nftables marks: they are for all, and accept nothing else. What firewalld does not let
// go it may never let go, and that must not keep the container's link and addresses: the record has it, for GC.
func (f Forward) del(ctx context.Context, h host, hint []netip.Prefix) error {
	_, err := h.delFilter(ctx, nft.Forwarding, iptables.Forwarding, hint)
	h.WarnOf(f.Zone.Del(ctx, h.Key, hint))
	return err
}

func (Forward) stores(*plugin.Request) []plugin.Store {
	return []plugin.Store{nft.Forwarding, iptables.Forwarding, firewalld.Sources{}}
}
