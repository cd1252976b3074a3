package calllog

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/cnibox/cnibox/pkg/state"
)

// Read returns all calls of the log in a directory, the earliest first, and how many lines are none: torn ones, of a full disk. The error
// says which files could not be read; the calls of others are there all the same.
func Read(dir string) (calls []Call, torn int, err error) {
	r := NewReader(dir)
	defer r.Close()
	calls, err = r.Next()
	for _, s := range r.sources {
		if st, err := s.Stat(); err == nil && st.Size() > s.at {
			r.Torn++ // its end
		}
	}
	return calls, r.Torn, err
}

// Reader reads a log that grows and is rotated.
type Reader struct {
	Torn int // lines that are no calls, so far

	dir     string
	sources []*source // the oldest first
}

// source is a file of the log, whatever it is called by now, and how far it has been read.
type source struct {
	*os.File
	at int64
}

// NewReader returns a reader of the log in a directory.
func NewReader(dir string) *Reader { return &Reader{dir: dir} }

// Next returns the calls that have been written since it was called before, at first all. Those that it returns together are in order.
func (r *Reader) Next() (calls []Call, err error) {
	there, err := r.open()
	for _, s := range r.sources {
		if !slices.Contains(there, s) { // it has lost its last name; what was written before is read
			calls = append(calls, r.read(s)...)
			_ = s.Close()
		}
	}
	r.sources = there
	for _, s := range r.sources {
		calls = append(calls, r.read(s)...)
	}
	slices.SortStableFunc(calls, func(a, b Call) int { return a.Time.Compare(b.Time) })
	return calls, err
}

// Close closes the files.
func (r *Reader) Close() {
	for _, s := range r.sources {
		_ = s.Close()
	}
}

// open returns the files that are there. It looks for the current one first: a file that is renamed meanwhile is then found twice, and not missed.
func (r *Reader) open() (there []*source, errs error) {
	for _, name := range []string{current, ended, older} {
		f, st, err := open(filepath.Join(r.dir, name), os.O_RDONLY)
		if state.IsMissing(err) {
			continue
		}
		if err != nil {
			errs = errors.Join(errs, unusable(err))
			continue
		}
		is := func(s *source) bool {
			known, err := s.Stat()
			return err == nil && os.SameFile(known, st)
		}
		switch i := slices.IndexFunc(r.sources, is); {
		case slices.ContainsFunc(there, is):
			_ = f.Close()
		case i >= 0:
			_ = f.Close()
			there = append(there, r.sources[i])
		default:
			there = append(there, &source{File: f})
		}
	}
	slices.Reverse(there)
	return there, errs
}

// read returns the calls of a file's whole lines that were not read before.
func (r *Reader) read(s *source) (calls []Call) {
	st, err := s.Stat()
	if err != nil {
		return nil
	}
	if st.Size() < s.at {
		s.at = 0 // somebody has emptied it
	}
	text, _ := io.ReadAll(io.NewSectionReader(s, s.at, st.Size()-s.at))
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	s.at += int64(len(text))
	for line := range bytes.Lines(text) {
		c, ok := parse(line)
		if !ok && !bytes.HasPrefix(line, []byte(headStart)) {
			r.Torn++
			c, ok = parse(afterTorn(line))
		}
		if ok {
			calls = append(calls, c)
		}
	}
	return calls
}

// afterTorn returns the whole line that was written behind the beginning of another, which a full disk has cut. No text within a line
// has such quotes.
func afterTorn(line []byte) []byte {
	return line[max(bytes.LastIndex(line, []byte(`{"time":`)), 0):]
}
