package repair

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/test/netlab"
)

// attempts returns one for each text: the container's number, then the hour of the ADD, and the interface, which is one of its own if that is
// left out. Container 0 is not known, and a time of 0 is no result.
func attempts(texts ...string) (list []*attempt) {
	containers := map[byte]*node.Namespace{'0': nil}
	for _, text := range texts {
		if containers[text[0]] == nil && text[0] != '0' {
			containers[text[0]] = &node.Namespace{}
		}
		a := &attempt{Attachment: &node.Attachment{Owner: text, IfName: cmp.Or(text[2:], text), Namespace: containers[text[0]]}, report: &Report{}}
		if text[1] != '0' {
			a.Result = &node.Result{Written: time.Unix(0, 0).Add(time.Duration(text[1]-'0') * time.Hour)}
		}
		list = append(list, a)
	}
	return list
}

func owners(list []*attempt) (texts []string) {
	for _, a := range list {
		texts = append(texts, a.Owner)
	}
	return texts
}

func TestInOrder(t *testing.T) {
	list := attempts("48a", "25", "13", "11", "46a", "24", "00", "32", "47b")
	inOrder(list)
	if got, want := owners(list), []string{"00", "13", "11", "32", "25", "24", "47b", "46a", "48a"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestEach has the attachments of one container come in order, and of several containers at the same time.
func TestEach(t *testing.T) {
	var mu sync.Mutex
	var done []string
	under := map[*node.Namespace]int{}
	list := attempts("13", "12", "25", "24", "01", "02", "11", "23")
	err := each(t.Context(), list, func(a *attempt, _ context.Context) {
		mu.Lock()
		under[a.Namespace]++
		if a.Namespace != nil && under[a.Namespace] > 1 {
			t.Errorf("%s beside another one of its container", a.Owner)
		}
		mu.Unlock()
		netlab.Pause(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		under[a.Namespace]--
		done = append(done, a.Owner)
	})
	if err != nil || len(done) != len(list) {
		t.Fatalf("%v, %v", done, err)
	}
	for container, want := range map[byte][]string{'1': {"13", "12", "11"}, '2': {"25", "24", "23"}} {
		if got := slices.DeleteFunc(slices.Clone(done), func(text string) bool { return text[0] != container }); !slices.Equal(got, want) {
			t.Errorf("container %c: %v, want %v", container, got, want)
		}
	}
	if got := byContainer(list); len(got) != 4 {
		t.Errorf("%d containers, want the two, and two that are not known", len(got))
	}
}

// TestEachEnds has no more begun when the context ends.
func TestEachEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	var mu sync.Mutex
	count := 0
	err := each(ctx, attempts("19", "18", "17", "16"), func(*attempt, context.Context) {
		mu.Lock()
		defer mu.Unlock()
		count++
		cancel(stop)
	})
	if !errors.Is(err, stop) || count != 1 {
		t.Errorf("%v after %d", err, count)
	}
}

// TestSettle waits from when an attachment was found wrong, for as long as it is told to.
func TestSettle(t *testing.T) {
	a := &attempt{}
	for told, want := range map[time.Duration]time.Duration{0: settleBefore, 2 * settleBefore: 2 * settleBefore} {
		a.shared, a.found = newShared(Options{Settle: told}, 1), time.Now()
		if err := a.settle(t.Context()); err != nil || time.Since(a.found) < want {
			t.Errorf("%v after %v, want %v", err, time.Since(a.found), want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.found = time.Now().Add(time.Hour)
	if err := a.settle(ctx); err == nil {
		t.Error("it goes on though the context has ended")
	}
}

// TestCount tells of each that is done.
func TestCount(t *testing.T) {
	var told [][2]int
	s := newShared(Options{Progress: func(done, all int) { told = append(told, [2]int{done, all}) }}, 2)
	s.count()
	s.count()
	if !slices.Equal(told, [][2]int{{1, 2}, {2, 2}}) {
		t.Error(told)
	}
}
