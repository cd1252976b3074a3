package trace

import (
	"net/netip"
	"slices"
)

// marks are what the tables of a place mark.
func (r *run) marks(p *place) Marks {
	m := Marks{table: r.table, Flow: r.flow, State: p.isHost(), Stay: r.Imitated}
	if r.Imitated {
		m.Keep, m.Links, m.Door = []netip.Addr{r.flow.To, r.flow.From}, r.hostLinks(), r.from.hostEnd.Attrs().Name
		return m // nobody has to be asked for his link address
	}
	m.Next = r.next()
	if r.Outside && p.isHost() {
		m.Keep, m.Out = []netip.Addr{r.flow.From}, r.outwards()
	}
	switch {
	case p.isHost():
		m.Links = r.hostLinks()
	case p == r.source && r.from.inside != nil:
		m.Links = []string{r.from.inside.Attrs().Name}
	case p == r.target && r.to.inside != nil:
		m.Links = []string{r.to.inside.Attrs().Name}
	}
	return m
}

// next are the addresses whose link addresses have to be asked for.
func (r *run) next() (list []netip.Addr) {
	for _, a := range []netip.Addr{r.flow.To, r.flow.From, r.source.route(r.flow.To, netip.Addr{}, 0, 0).next} {
		if a.IsValid() && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// outwards are the links by which a packet from outside could leave the node again, if nothing leads it to a container.
func (r *run) outwards() (names []string) {
	names = append(names, r.inject.to.Attrs().Name)
	uplinks, _ := r.Host.Uplinks()
	for _, l := range uplinks {
		if l.Name != names[0] {
			names = append(names, l.Name)
		}
	}
	return names
}

// hostLinks are the links of the host by which the packets may come in.
func (r *run) hostLinks() (names []string) {
	names = append(r.from.links(), r.to.links()...)
	if r.inject != nil {
		names = append(names, r.inject.to.Attrs().Name)
	}
	for _, a := range []netip.Addr{r.flow.To, r.flow.From} {
		if a.IsValid() {
			if out := routeOf(a, netip.Addr{}, 0, 0); out.err == nil && !out.local {
				names = append(names, linkName(out.link))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
