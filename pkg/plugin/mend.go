package plugin

import (
	"context"
	"errors"
)

// Mender is told by a plugin's Mend what is not as ADD has made it, and knows what becomes of that: a CHECK ends with the first thing, a repair
// mends all of them.
type Mender struct {
	request *Request
	repairs bool
	found   error // the first thing
	left    []error
}

// Ask calls a plugin's Mend. It returns the first thing that is not as ADD has made it, nil if all is, and, of a repair, all that could not be
// mended.
func Ask(ctx context.Context, p Plugin, r *Request, repairs bool) (found, left error) {
	m := &Mender{request: r, repairs: repairs}
	m.Fail(p.Mend(ctx, r, m))
	if repairs && !m.repairs {
		return m.found, m.found
	}
	return m.found, errors.Join(m.left...)
}

// Ask is the same for another plugin, in the mender's way. What it returns is for Add.
func (m *Mender) Ask(ctx context.Context, p Plugin, r *Request) (found, left error) {
	return Ask(ctx, p, r, m.repairs)
}

// Add adds what another plugin has found, and what is left of it.
func (m *Mender) Add(found, left error) {
	if m.found == nil {
		m.found = found
	}
	if left != nil {
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
	if !m.repairs {
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
	m.Add(found, nil)
	if !m.repairs {
		return found
	}
	return Lost(found)
}

// Lost returns the same error without a mender.
func Lost(found error) error {
	return Errorf("restart the container", "%s: %w", AsError(found).Msg, ErrLost)
}

// LookOnly keeps all that is found as it is, because it is another's.
func (m *Mender) LookOnly() { m.repairs = false }

// Repairs reports whether what is found is mended.
func (m *Mender) Repairs() bool { return m.repairs }

// HasFound reports whether there was anything yet. A CHECK is over then.
func (m *Mender) HasFound() bool { return m.found != nil }

// IsOver reports whether what comes next is nobody's concern.
func (m *Mender) IsOver() bool { return m.found != nil && !m.repairs }
