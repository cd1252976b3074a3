package node

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cnibox/cnibox/pkg/sysctl"
)

// Connections are how many connections the kernel tracks in one network namespace, and how many it lets each have: that is the machine's own namespace's to
// say, for all of them.
type Connections struct {
	Tracked, Most int
	Dropped       uint64 // packets, as there was no room for another connection. Not all kernels say (CONFIG_NF_CONNTRACK_PROCFS)
	IsFixed       bool   // this namespace can't set Most
}

// ReadConnections reads those of the calling thread's namespace. All is 0 if the kernel tracks none.
func ReadConnections() (c Connections) {
	c.Tracked = trackerValue("nf_conntrack_count")
	c.Most = trackerValue("nf_conntrack_max")
	c.Dropped = trackerDrops()
	file, err := os.OpenFile("/proc/sys/net/netfilter/nf_conntrack_max", os.O_WRONLY, 0)
	if c.IsFixed = err != nil; err == nil {
		_ = file.Close()
	}
	return c
}

// IsFull reports whether there is no room for another one.
func (c Connections) IsFull() bool { return c.Most > 0 && c.Tracked >= c.Most }

// IsNearlyFull reports whether that may soon be so.
func (c Connections) IsNearlyFull() bool { return c.Most > 0 && c.Tracked >= c.Most-c.Most/10 }

func trackerValue(name string) int {
	text, _ := sysctl.Get("net/netfilter/" + name)
	n, _ := strconv.Atoi(text)
	return n
}

// trackerDrops sums up what each processor counts, in hexadecimal.
func trackerDrops() (sum uint64) {
	text, _ := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	at := slices.Index(strings.Fields(lines[0]), "drop")
	for _, line := range lines[1:] {
		if values := strings.Fields(line); at >= 0 && at < len(values) {
			n, _ := strconv.ParseUint(values[at], 16, 64)
			sum += n
		}
	}
	return sum
}
