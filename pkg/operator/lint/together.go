package lint

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/cnibox/cnibox/pkg/operator/finding"
)

var networkNameTwice = codes.Declare(finding.Code{Name: "network-name-twice", Severity: finding.Warning,
	Meaning: "Of two files with one network libcni takes the first. The other does nothing.",
	Remedy:  "another name"})

// checkTogether compares the networks of a directory with each other.
func checkTogether(files []*file) {
	var list []*file
	for _, f := range files {
		if f.network != nil && isRead(f.Name) && f.definition == nil {
			list = append(list, f)
		}
	}
	for i, f := range files {
		for _, before := range files[:i] {
			if f.network != nil && before.network != nil {
				f.checkSubnets(before)
				f.checkRanges(before)
			}
		}
	}
	checkFirst(list)
	slices.SortStableFunc(list, func(a, b *file) int { // the order in which libcni looks for a name
		return cmp.Or(cmp.Compare(order(a.Name), order(b.Name)), cmp.Compare(filepath.Base(a.Name), filepath.Base(b.Name)))
	})
	for i, f := range list {
		for _, before := range list[:i] {
			if f.network.name != "" && f.network.name == before.network.name && filepath.Dir(f.Name) == filepath.Dir(before.Name) {
				f.report(networkNameTwice, f.network.named, "another name", nil, "%s has a network %q too, which comes first: this one does nothing", filepath.Base(before.Name), f.network.name)
				break
			}
		}
	}
}

// order returns where libcni looks for a file: lists first.
func order(name string) int {
	if isListName(name) {
		return 0
	}
	return 1
}

// isRead reports whether libcni reads a file of this name in a directory.
func isRead(name string) bool {
	return slices.Contains([]string{".conflist", ".conf", ".json"}, filepath.Ext(name))
}

var sortsBehind = codes.Declare(finding.Code{Name: "sorts-behind", Severity: finding.Info,
	Meaning: "Kubernetes' runtimes take the first network of the directory, in the order of text: `10-` comes before `9-`."})

// checkFirst says of each network but the first that Kubernetes' runtimes don't use it.
func checkFirst(list []*file) {
	first := map[string]*file{}
	for _, f := range list {
		dir := filepath.Dir(f.Name)
		if first[dir] == nil || filepath.Base(f.Name) < filepath.Base(first[dir].Name) {
			first[dir] = f
		}
	}
	for _, f := range list {
		if of := first[filepath.Dir(f.Name)]; of != f && f.InDir {
			f.report(sortsBehind, f.network.named, "", nil, "of this directory Kubernetes' runtimes use %s, not this one", filepath.Base(of.Name))
		}
	}
}

// routed is the addresses that a network's containers get through this node.
type routed struct {
	pool
	bridge string // "" is none
}

// routed returns what the node is the gateway of. On other networks the segment may well have the same addresses.
func (n *network) routed() (list []routed) {
	for _, p := range n.all() {
		if p.facts.IsGateway {
			for _, r := range pools(p) {
				list = append(list, routed{r, p.facts.Bridge})
			}
		}
	}
	return list
}

var (
	subnetsOverlap = codes.Declare(finding.Code{Name: "subnets-overlap", Severity: finding.Error,
		Meaning: "Two networks that this node routes for hand out the same addresses.",
		Remedy:  "another subnet"})
	bridgeShared = codes.Declare(finding.Code{Name: "bridge-shared", Severity: finding.Warning,
		Meaning: "Two networks give one bridge different gateways. Without `forceAddress` the second ADD fails.",
		Remedy:  "another bridge, or one subnet with a range for each"})
)

// checkSubnets compares the addresses with those of another file's network.
func (f *file) checkSubnets(other *file) {
	for _, r := range f.network.routed() {
		for _, q := range other.network.routed() {
			where := r.get("subnet").span
			line, _ := other.position(q.get("subnet").at)
			sameBridge := r.bridge != "" && r.bridge == q.bridge
			switch {
			case sameBridge && r.subnet == q.subnet && !r.shares(q.pool):
			case f.network.name == other.network.name: // libcni takes one of them
			case r.subnet.Overlaps(q.subnet):
				f.report(subnetsOverlap, where, "another subnet", nil, "%s has addresses of %s, which network %q has (%s:%d)", r.subnet, q.subnet, other.network.name, other.Name, line)
			case sameBridge && r.subnet.Addr().Is4() == q.subnet.Addr().Is4() && !r.of.isOn("forceAddress"):
				f.report(bridgeShared, where, "another \"bridge\"", nil, "the bridge %s is to have a gateway in %s, and network %q gives it one in %s (%s:%d)",
					r.bridge, r.subnet, other.network.name, q.subnet, other.Name, line)
			}
		}
	}
}

var rangeShared = codes.Declare(finding.Code{Name: "range-shared", Severity: finding.Error,
	Meaning: "Two networks hand out the same addresses on one bridge, or on one link of the host. Each counts for itself: two containers get one address.",
	Remedy:  "a part of the subnet for each, by `rangeStart` and `rangeEnd`"})

// checkRanges compares the addresses of networks that are on one bridge, or on one master: there no gateway tells them apart.
func (f *file) checkRanges(other *file) {
	for _, p := range f.network.all() {
		for _, q := range other.network.all() {
			segment := p.of.Segment()
			isSaid := p.facts.IsGateway && q.facts.IsGateway // by checkSubnets
			if segment == "" || segment != q.of.Segment() || isSaid || f.network.name == other.network.name {
				continue
			}
			for _, r := range pools(p) {
				for _, o := range pools(q) {
					if r.shares(o) {
						line, _ := other.position(o.get("subnet").at)
						f.report(rangeShared, r.get("subnet").span, `"rangeStart" and "rangeEnd", with other addresses than those there`, nil,
							"%s has addresses of %s, which network %q hands out on %s, too (%s:%d)", r.subnet, o.subnet, other.network.name, segment, other.Name, line)
					}
				}
			}
		}
	}
}
