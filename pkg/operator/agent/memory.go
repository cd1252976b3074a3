package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/repair"
)

// An attachment that was mended often within a while is mended once a pause, so that a fight with somebody costs little.
const (
	often = 5
	while = time.Minute
	pause = 10 * time.Second
)

// calm knows who was mended lately.
type calm struct {
	mu     sync.Mutex
	mended map[string][]time.Time // by attachment, the last times
	slower map[string]bool        // attachments that have had to wait
}

// leave returns the attachments that can be looked at now, those that have to wait, and of these the ones that did not have to before.
func (c *calm) leave(all []*node.Attachment, now time.Time) (list, hot, first []*node.Attachment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range all {
		key := a.Key().String()
		times := c.mended[key]
		if c.slower[key] && now.Sub(times[len(times)-1]) > while {
			delete(c.slower, key)
		}
		if len(times) < often || now.Sub(times[0]) >= while || now.Sub(times[often-1]) >= pause {
			list = append(list, a)
			continue
		}
		hot = append(hot, a)
		if !c.slower[key] {
			first = append(first, a)
			if c.slower == nil {
				c.slower = map[string]bool{}
			}
			c.slower[key] = true
		}
	}
	return list, hot, first
}

// waiting returns the attachments that are put back more slowly.
func (c *calm) waiting(now time.Time) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []string{}
	for key := range c.slower {
		if times := c.mended[key]; now.Sub(times[len(times)-1]) <= while {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return list
}

func (c *calm) note(r *repair.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mended == nil {
		c.mended = map[string][]time.Time{}
	}
	times := append(c.mended[keyOf(r)], time.Now())
	c.mended[keyOf(r)] = times[max(0, len(times)-often):]
}

// forget forgets other attachments than these.
func (c *calm) forget(allBut map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	removeOthers(c.mended, allBut)
	removeOthers(c.slower, allBut)
}

// said knows what was said of attachments, so that it is said once.
type said struct {
	mu    sync.Mutex
	texts map[string]string
}

// add notes what is said of something, and reports whether that is new.
func (s *said) add(about, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = map[string]string{}
	}
	isNew := s.texts[about] != text
	s.texts[about] = text
	return isNew
}

// has reports whether that was said of something.
func (s *said) has(about, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.texts[about] == text
}

// drop forgets what was said of something, and reports whether anything was.
func (s *said) drop(about string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, was := s.texts[about]
	delete(s.texts, about)
	return was
}

// forget forgets what was said of others than these.
func (s *said) forget(allBut map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	removeOthers(s.texts, allBut)
}

// all returns what is said.
func (s *said) all() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.texts)
	if all == nil {
		all = map[string]string{}
	}
	return all
}

// removeOthers removes from a map what is of none of some names.
func removeOthers[V any](m map[string]V, names map[string]bool) {
	for name := range m {
		if !names[name] {
			delete(m, name)
		}
	}
}

// namesOf returns the attachments of a node.
func namesOf(n *node.Node) map[string]bool {
	names := map[string]bool{}
	for _, a := range n.Attachments {
		names[a.Key().String()] = true
	}
	return names
}
