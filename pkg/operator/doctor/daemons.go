package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/operator/repair"
	"github.com/cnibox/cnibox/pkg/plugin"
)

var dhcpDaemonDown = codes.Declare(finding.Code{Name: "dhcp-daemon-down", Severity: finding.Error, Brings: finding.Codes{repair.Broken},
	Meaning: "No container gets an address of this network, and no lease is extended.",
	Remedy:  "`systemctl enable --now cnibox-dhcp.socket`"})

// checkDHCP looks whether somebody answers at the socket of the DHCP daemon that a network needs.
func checkDHCP(ctx context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		p := n.find(func(f plugin.Facts) bool { return f.Daemon != nil })
		if p == nil {
			continue
		}
		socket := p.Facts.Daemon.Socket
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			_ = conn.Close()
			continue
		}
		list = append(list, found(dhcpDaemonDown, n.Name, s.startDaemon(p), "nobody answers at %s, which network %s needs: %v", socket, n.Name, err))
	}
	return list, nil
}

// startDaemon returns the command that starts a plugin's daemon, by systemd where its units are installed. It has to be that of the plugin which
// runtimes run: the reference's has another protocol.
func (s *subject) startDaemon(p *netconf.Part) finding.Remedy {
	path, unit := filepath.Join(node.DefaultBinDir, p.Kind), p.Facts.Daemon.Unit
	if places, _ := s.places(); len(places) > 0 {
		if files := pluginfile.Find(places[0].dirs, p.Named); files != nil {
			path = files[0].Path
			if files[0].Origin == pluginfile.Reference {
				unit = p.Facts.Daemon.ReferenceUnit
			}
		}
	}
	if unit != "" && installedUnit(unit) != "" {
		return finding.Run("systemctl", "enable", "--now", unit)
	}
	words := append([]string{path}, p.Facts.Daemon.Arguments...)
	return finding.Steps(finding.Shell("setsid "+finding.Run(words...).String()+" </dev/null >/dev/null 2>&1 &"),
		finding.Say("and have it started at each boot: see docs/plugins/%s.md", p.Kind))
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

var (
	subnetEnvMissing = codes.Declare(finding.Code{Name: "subnet-env-missing", Severity: finding.Error, Brings: finding.Codes{repair.Broken},
		Meaning: "flannel's daemon has not leased a subnet for this node: no container gets an address.",
		Remedy:  "restart flannel's daemon"})
	subnetEnvTorn = codes.Declare(finding.Code{Name: "subnet-env-torn", Severity: finding.Error, Brings: finding.Codes{repair.Broken},
		Meaning: "flannel's file for this node is not whole: no container gets an address.",
		Remedy:  "restart flannel's daemon"})
)

// checkSubnetFiles looks whether another program has written the file that a plugin reads.
func checkSubnetFiles(_ context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		p := n.find(needsSubnetFile)
		if p == nil {
			continue
		}
		file := p.Facts.Subnets
		_, err := file.Read()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			list = append(list, found(subnetEnvMissing, n.Name, s.restartFlannel(file.Units), "%s is not there, which network %s needs", file.Path, n.Name))
		case err != nil:
			list = append(list, found(subnetEnvTorn, n.Name, s.restartFlannel(file.Units), "%s can't be used, which network %s needs: %v", file.Path, n.Name, err))
		}
	}
	return list, nil
}

// restartFlannel returns the command that has the daemon write its file: it does so when it starts.
func (s *subject) restartFlannel(units []string) finding.Remedy {
	for name, unit := range map[string]string{"k3s-server": "k3s", "k3s-agent": "k3s-agent"} {
		if slices.ContainsFunc(s.processes, func(p node.Process) bool { return p.OfNode && p.Name == name }) {
			return finding.Run("systemctl", "restart", unit)
		}
	}
	if unit := installedUnit(units...); unit != "" {
		return finding.Run("systemctl", "restart", unit)
	}
	name, _ := os.Hostname()
	return finding.Run("kubectl", "-n", "kube-flannel", "delete", "pod", "--field-selector", "spec.nodeName="+name)
}
