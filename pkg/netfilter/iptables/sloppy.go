package iptables

// sloppy tells whether iptables compares rules by part of them only when one is
// to be found by its text (-C, -D). ip6tables-legacy does that, as of 1.8.9: it
// takes rules for equal whose ports, marks, connection states or targets'
// options differ. There, rules are looked for in the list of them, and those of
// one container, which may look alike, are removed all together.
func sloppy(f family, fl flavour) bool { return f == ipv6 && fl == legacy }

// rebuild empties a container's chain, removes the jumps to it, and adds again
// all but what is to go.
func (l listing) rebuild(chain string, gone map[string]bool) []string {
	jumps := l.jumpsTo(chain)
	var lines []string
	for _, r := range jumps {
		lines = append(lines, r.remove())
	}
	lines = append(lines, "-F "+chain)
	for _, r := range append(l.inChain(chain), jumps...) {
		if !gone[r.identity()] {
			lines = append(lines, r.add())
		}
	}
	return lines
}
