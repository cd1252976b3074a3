package doctor

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
)

var (
	addressTwice = codes.Declare(finding.Code{Name: "address-twice", Severity: finding.Error, Brings: finding.Codes{repair.Broken},
		Meaning: "Two containers that run have one address: packets for one reach the other.",
		Remedy:  "start one of them again"})
	leaseLost = codes.Declare(finding.Code{Name: "lease-lost", Severity: finding.Error, Brings: finding.Codes{repair.Broken},
		Meaning: "Something has removed leases of containers that run. The next ADD can give their addresses to others.",
		Remedy:  "`cnictl repair NETWORK`"})
)

// checkAddresses looks whether containers have their addresses alone, and keep them.
func checkAddresses(ctx context.Context, s *subject) (list []Finding, err error) {
	isUnleased := func(owner string) bool {
		return slices.ContainsFunc(s.Attachments, func(a *node.Attachment) bool { return a.Owner == owner && a.Unleased != nil })
	}
	s.lookAgain(ctx)
	lost := map[string][]netip.Addr{} // by network
	for _, a := range s.Attachments {
		others := strings.Join(a.Twice, ", ")
		switch {
		case a.Unleased != nil && a.Twice != nil:
			list = append(list, found(addressTwice, a.Network, finding.Say("start the container of %s again, so that it gets another address", a.Owner),
				"%s has an address of %s, and no lease of it", a.Owner, others).Of(a.Owner))
		case a.Unleased != nil:
			lost[a.Network] = append(lost[a.Network], a.Unleased...)
		case a.Twice != nil && a.Owner < a.Twice[0] && !slices.ContainsFunc(a.Twice, isUnleased):
			list = append(list, found(addressTwice, a.Network, finding.Say("start one of the containers again, with another address"),
				"%s has an address of %s", a.Owner, others).Of(a.Owner))
		}
	}
	for _, n := range s.Networks {
		if addresses := lost[n.Name]; addresses != nil {
			list = append(list, found(leaseLost, n.Name, finding.Run("cnictl", "repair", n.Name), "no lease is there of %s, which %s of network %s",
				some(textsOf(addresses)), count(len(addresses), "container has", "containers have"), n.Name))
		}
	}
	return list, nil
}

// lookAgain forgets leases that seem to be lost of attachments that are gone at a second look: their DELs were under way.
func (s *subject) lookAgain(ctx context.Context) {
	isLost := func(a *node.Attachment) bool { return a.Unleased != nil }
	if !slices.ContainsFunc(s.Attachments, isLost) {
		return
	}
	again := node.Read(ctx, s.Options.Options)
	for _, a := range s.Attachments {
		isStill := func(o *node.Attachment) bool { return o.Owner == a.Owner && isLost(o) }
		if isLost(a) && !slices.ContainsFunc(again.Attachments, isStill) {
			a.Unleased = nil
		}
	}
}

func textsOf(list []netip.Addr) (texts []string) {
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return texts
}
