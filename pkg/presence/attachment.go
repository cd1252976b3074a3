package presence

import (
	"errors"
	"io/fs"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/cache"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Asked is what a plugin knows that finds something in use.
type Asked struct {
	plugin.Key           // who has it
	Results    string    // the directory in which libcni keeps results
	Since      time.Time // when it was given: a result from before is that of an earlier ADD, and says nothing
	Adding     string    // the path of the network namespace of an ADD of the same attachment that is under way
}

// About judges an attachment for a plugin.
func (h *Host) About(a Asked) Verdict {
	c := Claim{Key: a.Key}
	r, err := cache.Read(a.Results, a.Key)
	switch {
	case err == nil && !a.Since.After(r.Written):
		c.HasResult, c.Netns, c.MAC = true, r.Netns, r.MAC
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return Verdict{State: Unknown, Why: "it is not known whether it runs: " + err.Error()}
	}
	note, _ := h.notes.Read(a.Key)
	if note.CountsFor(r.Written) && note.CountsFor(a.Since) && !h.isOfADD(note, a.Adding) {
		c.Note = note
	}
	end, err := hostEnd(a.Key, a.Adding)
	if err != nil {
		return Verdict{State: Unknown, Why: "its host end can't be looked at: " + err.Error()}
	}
	if end != nil {
		c.HostEnd = end.Attrs().Name
		if leadsTo(end, c.Netns) {
			c.At = c.Netns
		}
	}
	return h.Of(c)
}

// isOfADD reports whether a note is of an ADD that is under way for the namespace at a path, or of an earlier one for the same.
func (h *Host) isOfADD(n *Note, adding string) bool {
	if n.Netns != adding {
		return false
	}
	is := h.ofNoted(n)
	return is.Namespace != nil && is.Namespace.isAt(adding)
}

// hostEnd returns an attachment's host end, nil if there is none.
func hostEnd(k plugin.Key, adding string) (netlink.Link, error) {
	for salt := range plugin.HostEnds {
		l, err := netlink.LinkByName(k.HostEnd(salt))
		switch {
		case link.IsNotFound(err):
		case err != nil:
			return nil, err
		case !leadsTo(l, adding):
			return l, nil
		}
	}
	return nil, nil
}

func leadsTo(l netlink.Link, path string) bool {
	ns, err := netns.Open(path)
	if err != nil {
		return false
	}
	defer ns.Close()
	id, err := netlink.GetNetNsIdByFd(int(ns.Fd()))
	return err == nil && link.LeadsInto(l, id)
}
