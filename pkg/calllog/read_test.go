package calllog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// called returns the line of a container's call at a second.
func called(second int, container string) string {
	c := Call{Time: time.Date(2026, 11, 17, 9, 0, second, 0, time.UTC), Verb: "ADD", Plugin: "demo"}
	c.ContainerID = container
	return string(c.line())
}

func containers(all []Call) (ids []string) {
	for _, c := range all {
		ids = append(ids, c.ContainerID)
	}
	return ids
}

func TestRead(t *testing.T) {
	a, b, c := called(1, "a"), called(2, "b"), called(3, "c")
	start := string(head(DefaultSize))
	tests := []struct {
		name                string
		older, ended, newer string
		want                string
		torn                int
	}{
		{name: "nothing"},
		{name: "a first line", newer: start},
		{name: "one file", newer: start + a + b, want: "a b"},
		{name: "all files", older: a, ended: b, newer: c, want: "a b c"},
		{name: "in the order of their time", older: c, ended: b, newer: a, want: "a b c"},
		{name: "within a file", newer: start + c + a + b, want: "a b c"},
		{name: "a torn line", newer: start + a + b[:50] + "\n" + c, want: "a c", torn: 1},
		{name: "a line behind a torn one", newer: start + a + b[:50] + c, want: "a c", torn: 1},
		{name: "behind one that is torn within a text", newer: a + strings.Replace(b, `"ADD"`, `"{\"time\":`, 1)[:60] + c, want: "a c", torn: 1},
		{name: "a torn end", newer: a + b[:50], want: "a", torn: 1},
		{name: "an end without its newline", newer: a + strings.TrimSuffix(b, "\n"), want: "a", torn: 1},
		{name: "torn in every file", older: a + "x", ended: b + "y", newer: c + "z", want: "a b c", torn: 3},
		{name: "other things", newer: "\x00\x00\x00\n[]\n7\n{}\n\n" + a, want: "a", torn: 5},
		{name: "a call without a verb", newer: strings.Replace(a, "ADD", "", 1) + b, want: "b", torn: 1},
		{name: "a call without a time", newer: strings.Replace(a, "2026", "now", 1) + b, want: "b", torn: 1},
		{name: "fields of a wrong type", newer: strings.Replace(a, `"containerID":"a"`, `"containerID":["a"],"steps":7,"error":null,"addresses":[1]`, 1), want: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{older: tt.older, ended: tt.ended, current: tt.newer} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			all, torn, err := Read(dir)
			if err != nil || strings.Join(containers(all), " ") != tt.want || torn != tt.torn {
				t.Errorf("got %v, %d torn, %v; want %s, %d torn", containers(all), torn, err, tt.want, tt.torn)
			}
		})
	}
}

// What can be read is there beside what can't.
func TestReadWhatCanBeRead(t *testing.T) {
	dir := turnedOn(t, DefaultSize)
	numbered(t, dir, "c", 2)
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, older)); err != nil {
		t.Fatal(err)
	}
	all, _, err := Read(dir)
	if len(all) != 2 || err == nil || !strings.Contains(err.Error(), older) {
		t.Errorf("%v, %v", containers(all), err)
	}
}

// A reader gets each call once, whatever becomes of the files in between.
func TestReader(t *testing.T) {
	dir := turnedOn(t, MinSize)
	r := NewReader(dir)
	defer r.Close()
	next := func(want ...string) {
		t.Helper()
		all, err := r.Next()
		if err != nil || !slices.Equal(containers(all), want) {
			t.Errorf("got %v, %v; want %v", containers(all), err, want)
		}
	}
	write := func(name, text string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	next()
	write(current, called(1, "a"))
	next("a")
	next()
	line := called(2, "b")
	write(current, line[:20])
	next()
	write(current, line[20:])
	next("b")
	write(current, called(3, "c"))
	rotateNow(t, dir)
	write(current, called(5, "e"))
	write(older, called(4, "d")) // by one who had it open
	next("c", "d", "e")
	write(current, called(6, "f"))
	rotateNow(t, dir)
	next("f")
	rotateNow(t, dir)
	write(current, called(7, "g"))
	next("g") // the file that had f is gone
	if err := Off(dir); err != nil {
		t.Fatal(err)
	}
	next()
	if err := On(dir, MinSize); err != nil {
		t.Fatal(err)
	}
	write(current, called(8, "h"))
	next("h")
	if err := os.Truncate(filepath.Join(dir, current), 0); err != nil {
		t.Fatal(err)
	}
	write(current, called(9, "i"))
	next("i")
	if r.Torn != 0 || len(r.sources) != 2 {
		t.Errorf("%d torn, %d files", r.Torn, len(r.sources))
	}
}

// A file that was known and has lost its last name is read to its end.
func TestReaderOfAFileThatIsGone(t *testing.T) {
	dir := turnedOn(t, MinSize)
	r := NewReader(dir)
	defer r.Close()
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	numbered(t, dir, "c", 3)
	if err := os.Remove(filepath.Join(dir, current)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{3, 0} {
		if all, err := r.Next(); err != nil || len(all) != want {
			t.Errorf("got %v, %v; want %d", containers(all), err, want)
		}
	}
}
