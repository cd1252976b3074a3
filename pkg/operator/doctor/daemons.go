package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/operator/runtimes"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// checkDHCP looks whether somebody answers at the socket of the DHCP daemon that a network needs.
func checkDHCP(ctx context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		p := n.find(func(f plugin.Facts) bool { return f.Daemon != nil })
		if p == nil {
			continue
		}
		socket := p.facts.Daemon.Socket
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			_ = conn.Close()
			continue
		}
		list = append(list, found("dhcp-daemon-down", n.Name, s.startDaemon(p), "nobody answers at %s, which network %s needs: %v", socket, n.Name, err))
	}
	return list, nil
}

// startDaemon returns the command that starts a plugin's daemon, by systemd where its units are installed. It has to be that of the plugin which
// runtimes run: the reference's has another protocol.
func (s *subject) startDaemon(p *part) string {
	path, unit := filepath.Join(node.DefaultBinDir, p.kind), p.facts.Daemon.Unit
	if places, _ := s.places(); len(places) > 0 {
		if files := pluginfile.Find(places[0].dirs, p.named); files != nil {
			path = files[0].Path
			if files[0].Origin == pluginfile.Reference {
				unit = p.facts.Daemon.ReferenceUnit
			}
		}
	}
	if unit != "" && installedUnit(unit) != "" {
		return command("systemctl", "enable", "--now", unit)
	}
	words := append([]string{path}, p.facts.Daemon.Arguments...)
	return lines("setsid "+command(words...)+" </dev/null >/dev/null 2>&1 &", comment("and have it started at each boot: see docs/plugins/%s.md", p.kind))
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

// checkSubnetFiles looks whether another program has written the file that a plugin reads.
func checkSubnetFiles(_ context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		p := n.find(needsSubnetFile)
		if p == nil {
			continue
		}
		file := p.facts.Subnets
		_, err := file.Read()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			list = append(list, found("subnet-env-missing", n.Name, s.restartFlannel(file.Units), "%s is not there, which network %s needs", file.Path, n.Name))
		case err != nil:
			list = append(list, found("subnet-env-torn", n.Name, s.restartFlannel(file.Units), "%s can't be used, which network %s needs: %v", file.Path, n.Name, err))
		}
	}
	return list, nil
}

// restartFlannel returns the command that has the daemon write its file: it does so when it starts.
func (s *subject) restartFlannel(units []string) string {
	if i := slices.IndexFunc(s.processes, func(p runtimes.Process) bool { return strings.HasPrefix(p.Name, "k3s-") }); i >= 0 {
		return command("systemctl", "restart", strings.TrimSuffix(s.processes[i].Name, "-server"))
	}
	if unit := installedUnit(units...); unit != "" {
		return command("systemctl", "restart", unit)
	}
	name, _ := os.Hostname()
	return command("kubectl", "-n", "kube-flannel", "delete", "pod", "--field-selector", "spec.nodeName="+name)
}
