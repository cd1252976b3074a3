package plugin

import (
	"context"
	"errors"
)

// Way is what becomes of what a Mend finds.
type Way int

// The ways: CHECK ends with the first thing, a look lists all, a repair mends all.
const (
	Checks Way = iota
	Looks
	Repairs
)

// Mender is told by a plugin's Mend what is not as ADD has made it, and knows what becomes of that.
type Mender struct {
	request    *Request
	way        Way
	isBorrowed bool // what is looked at is another's
	found      []error
	left       []error
}

// Ask calls a plugin's Mend.
func Ask(ctx context.Context, p Plugin, r *Request, way Way) *Mender {
	m := &Mender{request: r, way: way}
	m.Fail(p.Mend(ctx, r, m))
	return m
}

// Ask is the same for another plugin, in this mender's way. Add takes what that has found.
func (m *Mender) Ask(ctx context.Context, p Plugin, r *Request) *Mender { return Ask(ctx, p, r, m.way) }

// Found returns all that is not as ADD has made it; of a CHECK that is the first thing.
func (m *Mender) Found() []error { return m.found }

// First returns the first thing, nil if all is as ADD has made it.
func (m *Mender) First() error {
	if len(m.found) == 0 {
		return nil
	}
	return m.found[0]
}

// Left returns what a repair could not mend.
func (m *Mender) Left() error { return errors.Join(m.left...) }

// Add adds what another plugin has found, or what is left of that.
func (m *Mender) Add(found, left error) {
	if found != nil && !m.IsOver() {
		m.found = append(m.found, found)
	}
	if m.isBorrowed {
		left = found
	}
	if left != nil && m.way == Repairs {
		m.left = append(m.left, left)
	}
}

// Mend says what is not as ADD has made it, nil for nothing, and how that is mended: what is done, for who follows a repair, "" if do says that
// itself. It reports whether all is right now, so that a plugin can look at what depends on it.
func (m *Mender) Mend(found error, what string, do func() error) bool {
	if found == nil {
		return true
	}
	m.Add(found, nil)
	if !m.Repairs() {
		return false
	}
	if what != "" {
		m.request.Announce(what)
	}
	err := do()
	m.Add(nil, err)
	return err == nil
}

// Fail says what is wrong, or can't be looked at, and stays as it is. Nil is nothing.
func (m *Mender) Fail(err error) { m.Add(err, err) }

// Lost returns the error of a Mend for an attachment that is gone, or is another's by now: only a restart of the container brings it back.
func (m *Mender) Lost(found error) error {
	if !m.Repairs() {
		return found
	}
	m.Add(found, nil)
	return Lost(found)
}

// Lost returns the same error without a mender.
func Lost(found error) error {
	return Errorf("restart the container", "%s: %w", AsError(found).Msg, ErrLost)
}

// LookOnly keeps all that is found as it is, because it is another's.
func (m *Mender) LookOnly() { m.isBorrowed = true }

// Repairs reports whether what is found is mended.
func (m *Mender) Repairs() bool { return m.way == Repairs && !m.isBorrowed }

// HasFound reports whether there was anything yet.
func (m *Mender) HasFound() bool { return len(m.found) > 0 }

// IsCheck reports whether the first thing is all that is asked for.
func (m *Mender) IsCheck() bool { return m.way == Checks }

// IsOver reports whether what comes next is nobody's concern.
func (m *Mender) IsOver() bool { return m.way == Checks && m.HasFound() }
