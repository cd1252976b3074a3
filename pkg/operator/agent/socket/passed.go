package socket

import (
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/coreos/go-systemd/v22/activation"
)

// Passed are the sockets that systemd has passed to this process and that nobody has taken yet. Nil has none.
type Passed struct {
	files []*os.File
}

// FromSystemd returns them, and removes the variables that say so, as children must not read them.
func FromSystemd() *Passed { return &Passed{activation.Files(true)} }

// take returns the socket with this name (FileDescriptorName= of its unit), or at this path; nil if there is none.
func (p *Passed) take(path, name string) (*net.UnixListener, error) {
	if p == nil {
		return nil, nil
	}
	at := slices.IndexFunc(p.files, func(f *os.File) bool { return f.Name() == name || pathOf(f) == path })
	if at < 0 {
		return nil, nil
	}
	file := p.files[at]
	p.files = slices.Delete(p.files, at, at+1)
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("the socket that systemd passes: %w", err)
	}
	socket, is := l.(*net.UnixListener)
	if !is || socket.Addr().String() != path {
		_ = l.Close()
		return nil, fmt.Errorf("the socket %s that systemd passes is at %s: correct ListenStream= in its unit", name, l.Addr())
	}
	return socket, nil
}

// Close closes what nobody has taken, and returns the names.
func (p *Passed) Close() (names []string) {
	for _, f := range p.files {
		names = append(names, f.Name())
		_ = f.Close()
	}
	p.files = nil
	return names
}

// pathOf returns where a listening socket is, "" if it is none.
func pathOf(f *os.File) string {
	l, err := net.FileListener(f)
	if err != nil {
		return ""
	}
	defer l.Close()
	return l.Addr().String()
}
