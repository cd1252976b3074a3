package bugreport

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// Options say what a report is about.
type Options struct {
	node.Options
	Network string // only this one; "" is all
	Version string // of cnictl
}

// Sizes in bytes.
const (
	mostInAll  = 20 << 20 // of a report, before it is compressed
	mostOfFile = 5 << 20
)

// Manifest says what is in a report.
type Manifest struct {
	Version string    `json:"version"`
	Created time.Time `json:"created"`
	Network string    `json:"network,omitempty"`
	LeftOut int       `json:"leftOut"` // secrets, and values that may be some
	Seen    seen      `json:"seen"`    // what of configurations and results may be seen
	Parts   []Read    `json:"parts"`
}

// Read is a part that was read.
type Read struct {
	Part         string   `json:"part"`
	Reads        string   `json:"reads"`
	Milliseconds int64    `json:"milliseconds"`
	Files        []File   `json:"files"`
	Errors       []string `json:"errors,omitempty"`
}

// File is a file of a report.
type File struct {
	Name    string `json:"file"`
	Bytes   int    `json:"bytes"`
	LeftOut int    `json:"cut,omitempty"` // how many bytes of it are left out, since it was too large

	content []byte
}

// newSource returns a source of which nothing was read yet.
func newSource(o Options) *source {
	return &source{
		Options: o, secrets: newSecrets(o.Plugins),
		manifest: &Manifest{Version: o.Version, Created: time.Now().UTC().Truncate(time.Second), Network: o.Network, Parts: []Read{}},
	}
}

// end returns what was read, without secrets.
func (s *source) end() *Manifest {
	m, left := s.manifest, mostInAll
	for i := range m.Parts {
		m.Parts[i].scrub(s.secrets.scrub)
	}
	for i := range m.Parts {
		m.Parts[i].scrub(s.secrets.scrubKnown) // which all parts together have found
		m.Parts[i].shortenFiles(&left)
	}
	m.LeftOut, m.Seen = s.secrets.count(), s.secrets.seen()
	return m
}

func (r *Read) scrub(clean func([]byte) []byte) {
	for i := range r.Files {
		r.Files[i].content = clean(r.Files[i].content)
	}
	for i, text := range r.Errors {
		r.Errors[i] = string(clean([]byte(text)))
	}
}

// shortenFiles cuts files that are too large, and those for which there is no room left.
func (r *Read) shortenFiles(left *int) {
	slices.SortStableFunc(r.Files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	for i := range r.Files {
		f := &r.Files[i]
		f.content, f.LeftOut = shortenText(f.content, max(0, min(mostOfFile, *left)))
		f.Bytes = len(f.content)
		*left -= f.Bytes
	}
}

// shortenText shortens a text to whole lines, or words where they are long, and says in it that it did.
func shortenText(text []byte, most int) (short []byte, left int) {
	if len(text) <= most {
		return text, 0
	}
	end := strings.LastIndexAny(string(text[:most]), "\n ,") + 1
	return fmt.Appendf(text[:end:end], "\n[bugreport: %d more bytes are left out]\n", len(text)-end), len(text) - end
}

// Write writes a report: a compressed archive with the files in one order.
func (m *Manifest) Write(w io.Writer) error {
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	manifest, err := json.MarshalIndent(m, "", "    ")
	if err != nil {
		return err
	}
	if err := m.write(archive, "manifest.json", manifest); err != nil {
		return err
	}
	for _, p := range m.Parts {
		for _, f := range p.Files {
			if err := m.write(archive, f.Name, f.content); err != nil {
				return err
			}
		}
		if p.Errors != nil {
			if err := m.write(archive, p.Part+".error", []byte(strings.Join(p.Errors, "\n")+"\n")); err != nil {
				return err
			}
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zip.Close()
}

func (m *Manifest) write(archive *tar.Writer, name string, content []byte) error {
	head := &tar.Header{Name: "bugreport/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: m.Created}
	if err := archive.WriteHeader(head); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}
