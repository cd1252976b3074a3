package watch

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// programs knows who did something, by the number of a process.
type programs struct {
	table plugin.Table

	mu    sync.Mutex
	names map[uint32]string // of processes, as they were some moments ago
	since time.Time
}

// protocols returns the marks of the routes that our plugins make.
func (p *programs) protocols() (list []int) {
	for _, row := range p.table {
		if n := row.Facts(nil).RouteProtocol; n != 0 {
			list = append(list, n)
		}
	}
	return list
}

// isOurs reports whether a program's name is one of our programs'. The kernel keeps 15 bytes of the name by which it was run, such as that of a
// link. A longer one that is not known by these costs a look for nothing; one of somebody else with such a name is not seen.
func (p *programs) isOurs(name string) bool {
	const buildkit = "buildkit-cni-" // too long to be known by its end
	return slices.Contains([]string{pluginfile.Binary, pluginfile.EtcdBinary, "cnictl"}, name) || strings.HasPrefix(name, buildkit) || p.table.Find(name) != nil
}

// nameOf returns the name of the process with a number, "" if it has ended.
func (p *programs) nameOf(pid uint32) string {
	const most, lifetime = 1000, 100 * time.Millisecond
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.since) > lifetime || len(p.names) > most {
		p.names, p.since = map[uint32]string{}, now
	}
	name, known := p.names[pid]
	if !known {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		name = strings.TrimSuffix(string(text), "\n")
		p.names[pid] = name
	}
	return name
}

// describe says who has a number, for people: "ip (pid 4711)", "" if it is nobody's.
func describe(name string, pid uint32) string {
	const mostProcesses = 1 << 22
	switch {
	case pid == 0 || pid > mostProcesses: // the kernel, or a number made up for a second socket of a process
		return ""
	case name == "":
		return fmt.Sprintf("(pid %d)", pid)
	}
	return fmt.Sprintf("%s (pid %d)", harmless(name), pid)
}
