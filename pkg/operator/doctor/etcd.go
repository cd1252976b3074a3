package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/ipam/shared"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
	"github.com/cnibox/cnibox/pkg/state"
)

var (
	etcdAddressLost = codes.Declare(finding.Code{Name: "etcd-address-lost", Severity: finding.Error, Brings: finding.Codes{repair.Broken},
		Meaning: "This host was not heard of for longer than the grace, and another one has been given an address that a container has here: two have it.",
		Remedy:  "start the container anew"})
	etcdNotTold = codes.Declare(finding.Code{Name: "etcd-not-told", Severity: finding.Warning, Fixable: true,
		Meaning: "Addresses of containers that are gone are not free yet: etcd was not to be reached at their DEL.",
		Remedy:  "`cnictl leases keep NETWORK`"})
)

// checkEtcd looks at what this host has in etcd.
func checkEtcd(ctx context.Context, s *subject) (list []Finding, err error) {
	for _, of := range s.Shared() {
		name := of.Name()
		addresses, err := of.Held(ctx, "")
		if err != nil {
			return list, err
		}
		w := s.Network(name)
		isDown := w != nil && w.Shared != nil && w.Shared.Error != ""
		if w != nil && w.Shared != nil {
			list = append(list, checkHost(name, w.Shared)...)
		}
		var open, lost []string
		for _, h := range addresses {
			own, _ := h.Own.(shared.Held)
			switch {
			case own.Lost != "":
				lost = append(lost, h.Key.String()+": "+own.Lost)
			case !own.Address.IsValid() && (isDown || time.Since(h.Since) > time.Minute): // else it may be under way
				open = append(open, h.Key.String())
			}
		}
		if len(lost) > 0 {
			list = append(list, found(etcdAddressLost, name, finding.Say("start these containers anew"), "%s of network %s have addresses that are another host's by now: %s",
				count(len(lost), "container", "containers"), name, some(lost)))
		}
		if len(open) > 0 {
			list = append(list, found(etcdNotTold, name, finding.Run("cnictl", "leases", "keep", name), "etcd may not know yet that the addresses of %s of network %s are free: %s",
				count(len(open), "attachment", "attachments"), name, some(open)))
		}
	}
	return list, nil
}

var (
	etcdHostNameTaken = codes.Declare(finding.Code{Name: "etcd-host-name-taken", Severity: finding.Error,
		Meaning: "Two machines have one name in etcd. The one that came later gets no addresses.",
		Remedy:  "`ipam.etcd.host` in the network's file of one of them"})
	etcdUnreachable = codes.Declare(finding.Code{Name: "etcd-unreachable", Severity: finding.Error, Brings: finding.Codes{repair.Broken},
		Meaning: "No container gets an address of this network. Those that run keep theirs for the grace.",
		Remedy:  "`etcdctl endpoint status`"})
	etcdLeaseNotRenewed = codes.Declare(finding.Code{Name: "etcd-lease-not-renewed", Severity: finding.Warning,
		Meaning: "Half of the grace is over without a word from this host to etcd. When all of it is, others get its addresses.",
		Remedy:  "`systemctl enable --now cnibox-etcd.timer`, or the agent"})
)

// checkHost looks at what etcd has of this host.
func checkHost(network string, r *node.Shared) (list []Finding) {
	if r.Error != "" {
		return []Finding{found(etcdUnreachable, network, finding.Say("see which members run: etcdctl endpoint status"), "etcd, which has the addresses of network %s, can't be asked: %s", network, r.Error)}
	}
	machine, _ := state.Read("/etc/machine-id")
	for _, h := range r.Hosts {
		if h.Name != r.Host {
			continue
		}
		if own := strings.TrimSpace(string(machine)); h.MachineID != "" && h.MachineID != own {
			list = append(list, found(etcdHostNameTaken, network, finding.Say("set ipam.etcd.host to a name of its own in the network's file of one of the two"),
				"another machine is called %q in etcd, of network %s: its machine-id is %s, ours %s", h.Name, network, h.MachineID, own))
		}
		if h.Left < h.Grace/2 {
			list = append(list, found(etcdLeaseNotRenewed, network, finding.Run("systemctl", "enable", "--now", "cnibox-etcd.timer"),
				"nothing has told etcd for %s that this host is there: in %s the addresses of network %s that it has are free",
				time.Duration(h.Grace-h.Left)*time.Second, time.Duration(h.Left)*time.Second, network))
		}
	}
	return list
}
