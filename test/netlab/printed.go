package netlab

import (
	"bytes"
	"sync"
)

// Printed is what a process prints, or a log. A test reads it while it is written.
type Printed struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *Printed) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *Printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}
