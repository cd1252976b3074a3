package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/runtimes"
)

// confDirs returns the directories of networks, of runtimes and of who asks, each once.
func (s *subject) confDirs() []string {
	dirs := []string{filepath.Clean(s.confDir())}
	for _, r := range s.runtimes {
		if !slices.Contains(dirs, r.ConfDir) {
			dirs = append(dirs, r.ConfDir)
		}
	}
	return dirs
}

var (
	networkFileBroken = codes.Declare(finding.Code{Name: "network-file-broken", Severity: finding.Error,
		Meaning: "libcni finds no network that comes behind this file, and the runtime may be not ready.",
		Remedy:  "`mv FILE FILE.broken`, or correct it"})
	networkNameTwice = codes.Declare(finding.Code{Name: "network-name-twice", Severity: finding.Warning,
		Meaning: "Of two files with one network libcni takes the first, and changes to the other do nothing.",
		Remedy:  "`mv FILE FILE.unused`"})
)

// checkNetworkFiles looks at the files of networks as libcni does, which takes the first that has a name, and none behind one that it can't
// read.
func checkNetworkFiles(_ context.Context, s *subject) (list []Finding, err error) {
	for _, dir := range s.confDirs() {
		networks, broken, wrong := node.Load(dir)
		err = errors.Join(err, wrong)
		for _, b := range broken {
			remedy := finding.Steps(finding.Say("correct it, or put it aside: %s", b.Why), finding.Run("mv", b.What, b.What+".broken"))
			list = append(list, found(networkFileBroken, "", remedy, "%s can't be used: %s", b.What, b.Why).In(b.What))
		}
		byName := map[string]string{}
		for _, n := range networks {
			if taken := byName[n.Name]; taken != "" {
				list = append(list, found(networkNameTwice, n.Name, finding.Run("mv", n.File, n.File+".unused"),
					"%s and %s both have the network %s, and the first is taken", taken, n.File, n.Name).In(n.File))
				continue
			}
			byName[n.Name] = n.File
		}
		list = append(list, s.order(dir, networks)...)
	}
	return list, err
}

var networkOrder = codes.Declare(finding.Code{Name: "network-order", Severity: finding.Info,
	Meaning: "Of several networks the runtime takes one for all containers."})

// order says which network a runtime takes for all containers.
func (s *subject) order(dir string, networks []*node.Network) []Finding {
	i := slices.IndexFunc(s.runtimes, func(r runtimes.Runtime) bool { return r.TakesOne && r.ConfDir == dir })
	if i < 0 || len(networks) < 2 {
		return nil
	}
	slices.SortFunc(networks, func(a, b *node.Network) int { return strings.Compare(a.File, b.File) })
	var others []string
	for _, n := range networks[1:] {
		others = append(others, filepath.Base(n.File))
	}
	return []Finding{found(networkOrder, networks[0].Name, nil, "%s takes %s (network %s), whose name comes first, and not %s",
		s.runtimes[i].Name, networks[0].File, networks[0].Name, some(others))}
}

var confDirReplaced = codes.Declare(finding.Code{Name: "conf-dir-replaced", Severity: finding.Error,
	Meaning: "The runtime does not see new or changed networks. To reinstall CNI, delete what is in the directory, not the directory.",
	Remedy:  "`systemctl restart RUNTIME`"})

// checkConfDir looks whether runtimes that are told of changes in their directory of networks are told of those in the one that is there: who
// deletes a directory and makes it again has made another one.
func checkConfDir(_ context.Context, s *subject) (list []Finding, err error) {
	for _, r := range s.runtimes {
		for _, p := range s.processes {
			if !r.TakesOne || p.Name != r.Process || !p.OfNode {
				continue
			}
			told, wrong := isToldOf(p, r.ConfDir)
			err = errors.Join(err, wrong)
			if wrong == nil && !told {
				list = append(list, found(confDirReplaced, "", finding.Run("systemctl", "restart", unitOf(r)),
					"%s (process %d) is not told of changes in %s, which was deleted and made again while it ran", r.Name, p.PID, r.ConfDir))
			}
		}
	}
	return list, err
}

// isToldOf reports whether a process is told of changes in a directory, or of the making of it. One that asks for no changes at all needs
// not be, nor one that sees no such directory.
func isToldOf(p node.Process, dir string) (bool, error) {
	inodes, asked, err := watched(p)
	if err != nil || !asked {
		return true, err
	}
	for _, path := range []string{dir, filepath.Dir(dir)} {
		var file unix.Stat_t
		err := unix.Stat(p.Path("root", path), &file)
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		if err != nil || slices.Contains(inodes, file.Ino) {
			return true, err
		}
	}
	return false, nil
}

// unitOf returns the systemd unit of a runtime, which can be a part of another program.
func unitOf(r runtimes.Runtime) string {
	for _, unit := range []string{"k3s", "k3s-agent", "rke2-server", "rke2-agent"} {
		if _, err := os.Lstat("/run/systemd/units/invocation:" + unit + ".service"); err == nil && r.Process == "containerd" {
			return unit
		}
	}
	return r.Process
}
