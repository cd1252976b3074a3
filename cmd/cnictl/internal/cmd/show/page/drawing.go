package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/doctor"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/plugins/known"
)

// Page is what is drawn of a node.
type Page struct {
	Host, Version string
	Taken         time.Time

	Counts   map[node.State]int
	All      int
	Uplinks  []*node.Link
	Segments []*Segment
	Doors    []Door
	Idle     []*Network // nothing is attached to them
	Unowned  []node.Holding
	Unread   []node.Unread
	Findings []doctor.Finding
}

// Segment is a link of the host with the attachments behind it, or a way in which attachments are reached without one.
type Segment struct {
	Kind     string // bridge, uplink, routed or none
	Title    string
	Link     *node.Link
	Networks []*Network
	Dense    bool // there are so many cells that they are drawn small

	byName map[string]*Network
}

// Network is a network of a segment.
type Network struct {
	*node.Network
	Pools []Pool
	Cells []*Cell
}

// Pool is drawn as a bar.
type Pool struct {
	*node.Pool
	UsedWidth, GoneWidth int // in percent of the bar
}

// Cell is an attachment.
type Cell struct {
	*node.Attachment
	Number        int
	Short         string // by which show finds it
	Name, Address string
	Process       string
	File          string
}

// Door is a port of the host that leads to a cell.
type Door struct {
	node.Port
	Cell *Cell
}

// dense is from how many cells in a segment on they are drawn small.
const dense = 36

// New makes a page of attachments.
func New(n *node.Node, attachments []*node.Attachment, host, version string, taken time.Time) *Page {
	p := &Page{Host: host, Version: version, Taken: taken.UTC(), Counts: map[node.State]int{}, All: len(attachments), Unowned: n.Unowned, Unread: n.Unread}
	p.Uplinks, _ = n.Uplinks() // without them the page has none
	masters := usualMasters(attachments)
	segments := map[string]*Segment{}
	drawn := map[string]bool{}
	for i, a := range attachments {
		p.Counts[a.State]++
		key, s := p.segmentOf(n, a, masters)
		if segments[key] == nil {
			segments[key] = s
			p.Segments = append(p.Segments, s)
		}
		cell := newCell(a, i)
		segments[key].network(n, a.Network, drawn).add(cell)
		for _, port := range a.Ports {
			p.Doors = append(p.Doors, Door{port, cell})
		}
	}
	for _, s := range p.Segments {
		s.Dense = s.size() > dense
		for _, w := range s.Networks {
			slices.SortStableFunc(w.Cells, func(a, b *Cell) int { return a.Attachment.Address().Compare(b.Attachment.Address()) })
		}
	}
	slices.SortStableFunc(p.Segments, func(a, b *Segment) int { return cmp.Compare(rank(a.Kind), rank(b.Kind)) })
	slices.SortStableFunc(p.Doors, func(a, b Door) int {
		return cmp.Or(cmp.Compare(a.HostPort, b.HostPort), cmp.Compare(a.Protocol, b.Protocol))
	})
	for _, w := range n.Networks {
		if !drawn[w.Name] && w.Attachments == 0 {
			p.Idle = append(p.Idle, newNetwork(w))
		}
	}
	return p
}

// States are those that are counted.
func (*Page) States() []node.State { return node.States }

// rank orders segments.
func rank(kind string) int { return slices.Index([]string{bridged, "routed", "uplink", "none"}, kind) }

// usualMasters returns the link behind which most attachments of each network are; one that is gone may not say where it was.
func usualMasters(attachments []*node.Attachment) map[string]string {
	count := map[string]map[string]int{}
	for _, a := range attachments {
		if a.HostEnd == nil && a.Master == "" {
			continue
		}
		if count[a.Network] == nil {
			count[a.Network] = map[string]int{}
		}
		count[a.Network][a.Master]++
	}
	usual := map[string]string{}
	for network, masters := range count {
		for master, times := range masters {
			if best, known := usual[network]; !known || times > masters[best] || times == masters[best] && master < best {
				usual[network] = master
			}
		}
	}
	return usual
}

// segmentOf returns a segment for an attachment, and what it is known by.
func (p *Page) segmentOf(n *node.Node, a *node.Attachment, usual map[string]string) (string, *Segment) {
	master, known := usual[a.Network]
	if a.HostEnd != nil || a.Master != "" {
		master, known = a.Master, true
	}
	link := n.Link(master)
	s := &Segment{Title: master, Link: link, byName: map[string]*Network{}}
	switch {
	case !known && slices.ContainsFunc(a.Plugins, onUplink) && len(p.Uplinks) > 0:
		s.Kind, s.Title, s.Link = "uplink", p.Uplinks[0].Name, p.Uplinks[0]
	case !known:
		s.Kind, s.Title = "none", "in the container alone"
	case master == "":
		s.Kind, s.Title = "routed", "routed by the host"
	case link != nil && slices.Contains(p.Uplinks, link), slices.ContainsFunc(a.Plugins, onUplink):
		s.Kind = "uplink"
	default:
		s.Kind = bridged
	}
	return s.Kind + " " + s.Title, s
}

// onUplink reports whether a plugin makes links on another one, that of the default route unless another is named.
func onUplink(plugin string) bool {
	return known.Plugins.Find(plugin).Reads("master")
}

// network returns a network of the segment. Its pools are drawn once.
func (s *Segment) network(n *node.Node, name string, drawn map[string]bool) *Network {
	if s.byName[name] == nil {
		w := &Network{Network: &node.Network{Name: name}}
		if known := n.Network(name); known != nil {
			w.Network = known
			if !drawn[name] {
				w = newNetwork(known)
			}
		}
		drawn[name] = true
		s.byName[name] = w
		s.Networks = append(s.Networks, w)
	}
	return s.byName[name]
}

func (s *Segment) size() (n int) {
	for _, w := range s.Networks {
		n += len(w.Cells)
	}
	return n
}

func newNetwork(w *node.Network) *Network {
	drawn := &Network{Network: w}
	for _, p := range w.Pools {
		drawn.Pools = append(drawn.Pools, newPool(p))
	}
	return drawn
}

func (w *Network) add(c *Cell) {
	c.File = w.File
	w.Cells = append(w.Cells, c)
}

func newPool(p *node.Pool) Pool {
	drawn := Pool{Pool: p, UsedWidth: p.Percent()}
	if p.Used > 0 { // something has to be seen
		drawn.UsedWidth = max(drawn.UsedWidth, 1)
		drawn.GoneWidth = int(p.Gone * uint64(drawn.UsedWidth) / p.Used)
	}
	if p.Gone > 0 {
		drawn.GoneWidth = max(drawn.GoneWidth, 1)
	}
	return drawn
}

func newCell(a *node.Attachment, number int) *Cell {
	c := &Cell{Attachment: a, Number: number, Short: cmp.Or(a.ContainerID[:min(12, len(a.ContainerID))], a.Owner)}
	c.Name = cmp.Or(a.Pod[strings.LastIndex(a.Pod, "/")+1:], c.Short)
	if first := a.Address(); first.IsValid() {
		c.Address = first.String()
	}
	if a.Namespace != nil && a.Namespace.PID != 0 {
		c.Process = fmt.Sprintf("%d %s", a.Namespace.PID, a.Namespace.Command())
	}
	return c
}

// Search returns the words by which the cell is found.
func (c *Cell) Search() string {
	words := []string{c.Network, c.ContainerID, c.IfName, c.Pod, c.Netns, c.MAC, c.Master, string(c.State)}
	for _, p := range c.Addresses {
		words = append(words, p.String())
	}
	for _, p := range c.Ports {
		words = append(words, ":"+fmt.Sprint(p.HostPort))
	}
	if c.HostEnd != nil {
		words = append(words, c.HostEnd.Name, c.HostEnd.MAC)
	}
	return strings.ToLower(strings.Join(words, " "))
}
