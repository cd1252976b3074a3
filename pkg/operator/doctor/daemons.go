package doctor

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/operator/repair"
	"github.com/cnibox/cnibox/pkg/state"
)

const dhcpSocket = "/run/cni/dhcp.sock"

var dhcpDaemonDown = codes.Declare(finding.Code{Name: "dhcp-daemon-down", Severity: finding.Error, Brings: finding.Codes{repair.Broken},
	Meaning: "No container gets an address of this network, and no lease is extended.",
	Remedy:  "`systemctl enable --now cnibox-dhcp.socket`"})

// checkDHCP looks whether somebody answers at the socket of the DHCP daemon that a network needs.
func checkDHCP(ctx context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		p := n.find("dhcp")
		if p == nil {
			continue
		}
		socket := ""
		p.Config.String("daemonSocketPath", &socket)
		socket = cmp.Or(socket, dhcpSocket)
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			_ = conn.Close()
			continue
		}
		list = append(list, found(dhcpDaemonDown, n.Name, s.startDHCP(p.Named, socket), "nobody answers at %s, which network %s needs: %v", socket, n.Name, err))
	}
	return list, nil
}

// startDHCP returns the command that starts the daemon, by systemd where its units are installed. It has to be that of the plugin which
// runtimes run: the reference's has another protocol.
func (s *subject) startDHCP(name, socket string) finding.Remedy {
	path, unit := "/opt/cni/bin/dhcp", "cnibox-dhcp.socket"
	if places, _ := s.places(); len(places) > 0 {
		if files := pluginfile.Find(places[0].dirs, name); files != nil {
			path = files[0].Path
			if files[0].Origin == pluginfile.Reference {
				unit = "cni-dhcp.socket"
			}
		}
	}
	words := []string{path, "daemon"}
	switch {
	case socket != dhcpSocket:
		words = append(words, "-socketpath", socket)
	case installedUnit(unit) != "":
		return finding.Run("systemctl", "enable", "--now", unit)
	}
	return finding.Steps(finding.Shell("setsid "+finding.Run(words...).String()+" </dev/null >/dev/null 2>&1 &"), finding.Say("and have it started at each boot: see docs/plugins/dhcp.md"))
}

// installedUnit returns the first of some units of systemd that is installed, "" if none is.
func installedUnit(units ...string) string {
	for _, unit := range units {
		for _, dir := range []string{"/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"} {
			if _, err := os.Stat(filepath.Join(dir, unit)); err == nil {
				return unit
			}
		}
	}
	return ""
}

// subnetEnv is what flannel's daemon says about this node.
type subnetEnv struct {
	own []netip.Prefix // this node's subnets
	mtu int
}

func subnetFile(p *netconf.Part) string {
	path := ""
	p.Config.String("subnetFile", &path)
	return cmp.Or(path, "/run/flannel/subnet.env")
}

// readSubnetEnv reads lines KEY=VALUE.
func readSubnetEnv(path string) (env subnetEnv, err error) {
	text, err := state.Read(path)
	if err != nil {
		return env, err
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = value
	}
	for _, key := range []string{"FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET"} {
		for part := range strings.SplitSeq(values[key], ",") {
			if p, err := netip.ParsePrefix(part); err == nil {
				env.own = append(env.own, p)
			}
		}
	}
	env.mtu, _ = strconv.Atoi(values["FLANNEL_MTU"])
	if env.own == nil || env.mtu == 0 || values["FLANNEL_IPMASQ"] == "" || values["FLANNEL_NETWORK"]+values["FLANNEL_IPV6_NETWORK"] == "" {
		err = errors.New("it lacks FLANNEL_NETWORK, FLANNEL_SUBNET, FLANNEL_MTU or FLANNEL_IPMASQ")
	}
	return env, err
}

var (
	subnetEnvMissing = codes.Declare(finding.Code{Name: "subnet-env-missing", Severity: finding.Error, Brings: finding.Codes{repair.Broken},
		Meaning: "flannel's daemon has not leased a subnet for this node: no container gets an address.",
		Remedy:  "restart flannel's daemon"})
	subnetEnvTorn = codes.Declare(finding.Code{Name: "subnet-env-torn", Severity: finding.Error, Brings: finding.Codes{repair.Broken},
		Meaning: "flannel's file for this node is not whole: no container gets an address.",
		Remedy:  "restart flannel's daemon"})
)

// checkFlannel looks whether flannel's daemon has written what its plugin reads.
func checkFlannel(_ context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		p := n.find("flannel")
		if p == nil {
			continue
		}
		path := subnetFile(p)
		_, err := readSubnetEnv(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			list = append(list, found(subnetEnvMissing, n.Name, s.restartFlannel(), "%s is not there, which network %s needs", path, n.Name))
		case err != nil:
			list = append(list, found(subnetEnvTorn, n.Name, s.restartFlannel(), "%s can't be used, which network %s needs: %v", path, n.Name, err))
		}
	}
	return list, nil
}

// restartFlannel returns the command that has the daemon write its file: it does so when it starts.
func (s *subject) restartFlannel() finding.Remedy {
	for name, unit := range map[string]string{"k3s-server": "k3s", "k3s-agent": "k3s-agent"} {
		if slices.ContainsFunc(s.processes, func(p node.Process) bool { return p.OfNode && p.Name == name }) {
			return finding.Run("systemctl", "restart", unit)
		}
	}
	if unit := installedUnit("flanneld.service", "flannel.service"); unit != "" {
		return finding.Run("systemctl", "restart", unit)
	}
	name, _ := os.Hostname()
	return finding.Run("kubectl", "-n", "kube-flannel", "delete", "pod", "--field-selector", "spec.nodeName="+name)
}
