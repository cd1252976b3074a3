package plugin

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// two is a plugin that finds two things, of which one can be mended.
type two struct {
	Plugin
	lost bool
}

var inOrder = []error{errors.New("first"), errors.New("second"), errors.New("still second")}

func (p two) Mend(_ context.Context, r *Request, m *Mender) error {
	if p.lost {
		return m.Lost(inOrder[0])
	}
	m.Mend(nil, "nothing", func() error { return inOrder[2] })
	m.Mend(inOrder[0], "mend the first", func() error { r.Announce("done"); return nil })
	m.Mend(inOrder[1], "mend the second", func() error { return inOrder[2] })
	return nil
}

func TestMend(t *testing.T) {
	var said []string
	r := &Request{Trace: func(step string) { said = append(said, step) }}
	ask := func(p two, way Way) (first, left error) {
		m := Ask(context.Background(), p, r, way)
		return m.First(), m.Left()
	}
	if found, left := ask(two{}, Checks); found != inOrder[0] || left != nil || said != nil {
		t.Errorf("a CHECK: found %v, left %v, did %q", found, left, said)
	}
	if list := Ask(context.Background(), two{}, r, Looks).Found(); !slices.Equal(list, inOrder[:2]) || said != nil {
		t.Errorf("a look: found %v, did %q", list, said)
	}
	found, left := ask(two{}, Repairs)
	if want := []string{"mend the first", "done", "mend the second"}; found != inOrder[0] || left.Error() != inOrder[2].Error() || !slices.Equal(said, want) {
		t.Errorf("a repair: found %v, left %v, did %q, want %q", found, left, said, want)
	}
	found, left = ask(two{lost: true}, Repairs)
	if found != inOrder[0] || !errors.Is(left, ErrLost) {
		t.Errorf("of what is lost a repair has found %v, and left %v", found, left)
	}
}
