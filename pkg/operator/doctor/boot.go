package doctor

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/trust"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

var forwardingOffAtBoot = codes.Declare(finding.Code{Name: "forwarding-off-at-boot", Severity: finding.Warning,
	Meaning: "A file turns forwarding off at the next boot, and whenever somebody has the files read again, as an upgrade does: containers reach nothing but the host until the next ADD.",
	Remedy:  "`1` in that file"})

// sysctlDirs are where systemd-sysctl(8) and sysctl(8) look, the one that counts most first.
var sysctlDirs = []string{"/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"}

// checkBoot looks what the files say of forwarding that networks need: of all that name a sysctl the last counts.
func checkBoot(_ context.Context, s *subject) (list []Finding, err error) {
	off := map[string]string{} // the file, by sysctl
	for _, path := range configFiles(".conf", sysctlDirs...) {
		text, wrong := trust.Host.Read(path)
		if !errors.Is(wrong, fs.ErrNotExist) { // as where a link leads nowhere
			err = errors.Join(err, wrong)
		}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "-"), "=")
			key, wrong := sysctl.ParseKey(strings.TrimSpace(name))
			if wrong != nil {
				continue // a comment, or none of the network
			}
			at := strings.Replace(key.Path(), "net/ipv4/conf/all/forwarding", all4, 1) // which is the same one
			if off[at] = ""; strings.TrimSpace(value) == "0" {
				off[at] = path
			}
		}
	}
	for _, n := range s.networks {
		v4, v6 := n.families()
		for key, needs := range map[string]bool{all4: v4, all6: v6} {
			if file := off[key]; file != "" && needs && n.isRouted() {
				list = append(list, found(forwardingOffAtBoot, n.Name, finding.Say("write %s = 1 in %s, or leave it out there", dotted(key), file),
					"%s sets %s to 0 at boot, and the host is the gateway of network %s", file, dotted(key), n.Name))
			}
		}
	}
	return list, err
}
