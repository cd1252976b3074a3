package log

import (
	"fmt"

	"github.com/fsnotify/fsnotify"

	"github.com/cnibox/cnibox/pkg/calllog"
)

// Follower reads a log as it grows.
type Follower struct {
	reader  *calllog.Reader
	watcher *fsnotify.Watcher
	dir     string
	begun   bool
}

// Follow begins to watch the log in a directory.
func Follow(dir string) (*Follower, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	if err := w.Add(dir); err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	return &Follower{reader: calllog.NewReader(dir), watcher: w, dir: dir}, nil
}

// Next returns all calls there are when it is called first, and then waits for more.
func (f *Follower) Next() ([]calllog.Call, error) {
	for {
		if f.begun {
			select {
			case e := <-f.watcher.Events:
				if e.Name == f.dir && e.Has(fsnotify.Remove|fsnotify.Rename) {
					return nil, fmt.Errorf("%s is gone", f.dir)
				}
			case <-f.watcher.Errors: // too much happened at once: all of it is read
			}
		}
		list, err := f.reader.Next()
		if list != nil || err != nil || !f.begun {
			f.begun = true
			return list, err
		}
	}
}

// Close ends it.
func (f *Follower) Close() {
	_ = f.watcher.Close()
	f.reader.Close()
}
