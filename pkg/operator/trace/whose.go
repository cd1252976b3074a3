package trace

import (
	"context"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/program"
)

// Owner is whose a rule is.
type Owner string

// The owners that can be told by the names of chains and tables.
const (
	Ours          Owner = "cnibox"
	Docker        Owner = "docker"
	UFW           Owner = "ufw"
	Firewalld     Owner = "firewalld"
	KubeProxy     Owner = "kube-proxy"
	Administrator Owner = "an administrator"
	Guest         Owner = "the container"
	Kernel        Owner = "the kernel"
	Outside       Owner = "somebody outside of this node"
)

// makers are programs by the beginnings of the names of their chains or tables.
var makers = []struct {
	prefix string
	owner  Owner
}{
	{"cnibox", Ours}, {"CNI-", Ours}, {"DOCKER-USER", Administrator}, {"DOCKER", Docker}, {"docker-", Docker}, {"ufw", UFW}, {"firewalld", Firewalld}, {"FWD_", Firewalld}, {"FWDI_", Firewalld}, {"FORWARD_", Firewalld},
	{"INPUT_ZONES", Firewalld}, {"IN_", Firewalld}, {"KUBE-", KubeProxy}, {"kube-proxy", KubeProxy}, {"cali-", "calico"}, {"CILIUM", "cilium"}, {"FLANNEL", "flannel"}, {"flannel", "flannel"},
	{"NETAVARK", "netavark"}, {"netavark", "netavark"}, {"LIBVIRT", "libvirt"}, {"libvirt", "libvirt"}, {"f2b-", "fail2ban"}, {"ts-", "tailscale"}, {"nixos-fw", "NixOS' firewall"}, {"ISTIO", "istio"},
	{"lxd", "lxd"}, {"incus", "incus"}, {"WEAVE", "weave"}, {"crowdsec", "crowdsec"}, {"sshguard", "sshguard"}, {"mangle_", Firewalld}, {"filter_", Firewalld},
}

// ownerOf tells whose a chain is by its name, or by that of its table.
func ownerOf(table, chain string) Owner {
	for _, name := range []string{chain, table} {
		for _, m := range makers {
			if strings.HasPrefix(name, m.prefix) && (m.owner != Firewalld || strings.HasPrefix(table, "firewalld") || strings.ToUpper(m.prefix) == m.prefix) {
				return m.owner
			}
		}
	}
	return Administrator
}

// ownerOfPolicy tells who has set the policy of one of iptables' own chains: who has chains of its own beside it. chains are those of the table.
func ownerOfPolicy(table, chain string, chains []string) Owner {
	if o := ownerOf(table, chain); o != Administrator {
		return o
	}
	for _, sets := range []struct {
		prefix string
		owner  Owner
	}{{"ufw", UFW}, {"DOCKER", Docker}, {"FWD_", Firewalld}, {"FORWARD_direct", Firewalld}} {
		for _, name := range chains {
			if strings.HasPrefix(name, sets.prefix) && (sets.owner != Docker || chain == "FORWARD") {
				return sets.owner
			}
		}
	}
	return Administrator
}

// chainsIn lists the chains of a table, by nft if it is there.
func chainsIn(family, table string) (names []string) {
	text := nft("list", "table", family, table)
	for _, m := range chainLine.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

var (
	chainLine = regexp.MustCompile(`(?m)^\s*chain (\S+) \{`)
	ruleLine  = regexp.MustCompile(`(?m)^\s*(.*) # handle (\d+)$`)
	counter   = regexp.MustCompile(`counter packets \d+ bytes \d+ ?`)
)

// ruleText is a rule as nft prints it, "" if it is not there. A chain is listed once, however many of its rules the packet meets.
func (r *run) ruleText(at *place, e Event) (text string) {
	if e.Rule == 0 {
		return ""
	}
	of := chainOf{at, e.Family, e.Table, e.Chain}
	rules, listed := r.rules[of]
	if !listed {
		_ = at.do(func() error { rules = parseRules(nft("-a", "list", "chain", e.Family, e.Table, e.Chain)); return nil })
		r.rules[of] = rules
	}
	return rules[e.Rule]
}

// chainOf is a chain at a place.
type chainOf struct {
	at                   *place
	family, table, chain string
}

// parseRules reads the rules of a chain, by their handles.
func parseRules(text string) map[uint64]string {
	rules := map[uint64]string{}
	for _, m := range ruleLine.FindAllStringSubmatch(text, -1) {
		if handle, err := strconv.ParseUint(m[2], 10, 64); err == nil {
			rules[handle] = strings.TrimSpace(counter.ReplaceAllString(m[1], ""))
		}
	}
	return rules
}

// nft runs nft in the namespace of the calling thread. Its output about a container's own rules is only text.
func nft(args ...string) string {
	path, err := program.Find("nft")
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).Output()
	if err != nil {
		return ""
	}
	return string(out)
}
