package bugreport

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"runtime/debug"
	"sync"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// Part is one part of a report.
type Part struct {
	Name  string `json:"part"`
	Reads string `json:"reads"` // for people: where it comes from

	limit time.Duration
	read  func(s *source, ctx context.Context, out *output)
}

// source is what parts read from.
type source struct {
	Options
	secrets  *secrets
	host     node.Host
	manifest *Manifest
}

// output is what a part has read so far. Anything that it reads when its time is over is dropped.
type output struct {
	lock  sync.Mutex
	over  bool
	files []File
	errs  []string
}

// add adds a file, or more to the last one. Its name may come from anybody, and stays within the archive.
func (o *output) add(name string, content []byte) {
	o.lock.Lock()
	defer o.lock.Unlock()
	name = path.Clean("/" + name)[1:]
	switch last := len(o.files) - 1; {
	case o.over:
	case last >= 0 && o.files[last].Name == name:
		o.files[last].content = append(o.files[last].content, content...)
	default:
		o.files = append(o.files, File{Name: name, content: content})
	}
}

// addJSON adds a document.
func (o *output) addJSON(name string, document any) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "    ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		o.fail(name, err)
		return
	}
	o.add(name, text.Bytes())
}

func (o *output) fail(what string, err error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if !o.over {
		o.errs = append(o.errs, fmt.Sprintf("%s: %v", what, err))
	}
}

// grace is what a part gets after its time to say what has hung: the program that it has killed, say.
const grace = time.Second

// read reads a part within its time. A part that hangs in the kernel is left behind. After ctx has ended nothing is read.
func (s *source) read(ctx context.Context, p Part) {
	began, out, done := time.Now(), &output{files: []File{}}, make(chan struct{})
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	if ctx.Err() != nil {
		out.fail(p.Name, fmt.Errorf("it was not read: %w", context.Cause(ctx)))
		close(done)
	} else {
		go func() {
			defer close(done)
			defer out.rescue(p.Name)
			p.read(s, ctx, out)
		}()
	}
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(grace):
			out.fail(p.Name, fmt.Errorf("it was given up after %v; what was read until then is here", time.Since(began).Round(time.Second)))
		}
	}
	out.lock.Lock()
	defer out.lock.Unlock()
	out.over = true
	s.manifest.Parts = append(s.manifest.Parts, Read{Part: p.Name, Reads: p.Reads, Milliseconds: time.Since(began).Milliseconds(), Files: out.files, Errors: out.errs})
}

// rescue makes an error of a panic: on a node that is broken a report without a part is worth more than none.
func (o *output) rescue(what string) {
	if v := recover(); v != nil {
		o.fail(what, fmt.Errorf("it failed, which is an error of cnictl: %v\n%s", v, debug.Stack()))
	}
}
