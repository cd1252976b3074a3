package node

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is one of the host's network namespace, where the daemons are that look after it.
type Process struct {
	PID  int
	Name string // of its program, cut to 15 characters

	// OfNode says that it is root's and sees the node's files: not a user's, and not in a container. Only such a process is believed.
	OfNode bool
}

// Path returns a path below the process's directory in /proc.
func (p Process) Path(elements ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(p.PID)}, elements...)...)
}

func readProcesses() (list []Process, err error) {
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	for _, e := range entries {
		p := Process{}
		if p.PID, _ = strconv.Atoi(e.Name()); p.PID == 0 {
			continue
		}
		if ns, err := os.Readlink(p.Path("ns/net")); err != nil || ns != own {
			continue // or it has ended
		}
		name, _ := os.ReadFile(p.Path("comm"))
		p.Name = strings.TrimSpace(string(name))
		p.OfNode = p.isRoots() && p.shares("user", "self") && (p.shares("mnt", "self") || p.shares("mnt", "1"))
		list = append(list, p)
	}
	return list, err
}

// isRoots reports whether the process is root's, in all of its user ids.
func (p Process) isRoots() bool {
	status, _ := os.ReadFile(p.Path("status"))
	_, rest, _ := strings.Cut(string(status), "\nUid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	return line == "0\t0\t0\t0" // real, effective, saved, of the file system
}

// shares reports whether the process is in the same namespace of a kind as another. Systemd starts the agent in a mount namespace of its own, and
// Kubernetes does: process 1 is the node's for both.
func (p Process) shares(kind, other string) bool {
	own, err := os.Readlink(p.Path("ns", kind))
	others, wrong := os.Readlink(filepath.Join("/proc", other, "ns", kind))
	return err == nil && wrong == nil && own == others
}
