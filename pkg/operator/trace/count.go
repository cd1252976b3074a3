package trace

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/netfilter/program"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// counters are what the host counts of packets that nobody tells of one by one.
type counters struct {
	legacy      []counted
	reversePath uint64 // refused, since no way leads back by the link by which they came
	tracked     map[*place]node.Connections
}

// counted is a rule or a policy of iptables-legacy that drops.
type counted struct {
	program, table, chain, rule string
	packets                     uint64
	owner                       Owner
}

func count(places []*place) (c counters) {
	c.reversePath = kernelCounter("/proc/thread-self/net/netstat", "IPReversePathFilter")
	c.tracked = map[*place]node.Connections{}
	for _, p := range places {
		_ = p.do(func() error { c.tracked[p] = node.ReadConnections(); return nil })
	}
	for name, list := range map[string]string{"iptables": "/proc/thread-self/net/ip_tables_names", "ip6tables": "/proc/thread-self/net/ip6_tables_names"} {
		if tables, err := os.ReadFile(list); err != nil || len(tables) == 0 {
			continue // to ask would make its tables
		}
		path, err := program.Find(name + "-legacy-save")
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		text, err := program.Run(ctx, path, "", "-c")
		cancel()
		if err == nil {
			c.legacy = append(c.legacy, parseLegacy(name, text)...)
		}
	}
	return c
}

var (
	legacyPolicy = regexp.MustCompile(`^:(\S+) DROP \[(\d+):\d+\]$`)
	legacyRule   = regexp.MustCompile(`^\[(\d+):\d+\] -A (\S+) (.*-j (?:DROP|REJECT|NFQUEUE|TARPIT).*|.*-j (?:NOTRACK|CT --notrack).*)$`)
)

// parseLegacy reads what drops in the output of iptables-save -c.
func parseLegacy(name, text string) (list []counted) {
	table := ""
	var chains []string // of the table: their lines come before those of rules
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if after, is := strings.CutPrefix(line, "*"); is {
			table, chains = after, nil
		}
		if after, is := strings.CutPrefix(line, ":"); is {
			chains = append(chains, strings.Fields(after)[0])
		}
		c := counted{program: name + "-legacy", table: table}
		if m := legacyPolicy.FindStringSubmatch(line); m != nil {
			c.chain = m[1]
			c.packets, _ = strconv.ParseUint(m[2], 10, 64)
			list = append(list, c)
		}
		if m := legacyRule.FindStringSubmatch(line); m != nil {
			c.chain, c.rule = m[2], m[3]
			c.packets, _ = strconv.ParseUint(m[1], 10, 64)
			c.owner = ownerOf(table, c.chain)
			list = append(list, c)
		}
		if line == "COMMIT" {
			for i := range list {
				if list[i].table == table && list[i].rule == "" {
					list[i].owner = ownerOfPolicy(table, list[i].chain, chains)
				}
			}
		}
	}
	return list
}

// since returns the rules that have counted packets meanwhile.
func (c counters) since(before counters) (list []counted) {
	for _, now := range c.legacy {
		was := slices.IndexFunc(before.legacy, func(b counted) bool {
			return b.program == now.program && b.table == now.table && b.chain == now.chain && b.rule == now.rule
		})
		if was >= 0 && now.packets > before.legacy[was].packets {
			list = append(list, now)
		}
	}
	return list
}

// kernelCounter reads one of the tables in which a line of names is followed by a line of numbers.
func kernelCounter(path, name string) uint64 {
	text, _ := os.ReadFile(path)
	lines := strings.Split(string(text), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		if at := slices.Index(strings.Fields(lines[i]), name); at > 0 {
			if values := strings.Fields(lines[i+1]); at < len(values) {
				n, _ := strconv.ParseUint(values[at], 10, 64)
				return n
			}
		}
	}
	return 0
}
