// Package finding has what cnictl's commands say of what they find: of which kind it is, how bad, where, and what mends it.
package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Finding is one thing that was found, on a node, in a file or in a message.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`

	// The thing that it is about, as far as it is one of these.
	Network    string `json:"network,omitempty"`
	Attachment string `json:"attachment,omitempty"`
	File       string `json:"file,omitempty"`
	Line       int    `json:"line,omitempty"`   // from 1
	Column     int    `json:"column,omitempty"` // from 1, in characters
	Path       string `json:"path,omitempty"`   // of the key or value in the file, such as plugins[0].ipam.subnet

	Summary  string    `json:"summary"`            // what is, with names and values
	Meaning  string    `json:"meaning"`            // why it matters
	Remedy   string    `json:"remedy,omitempty"`   // what mends it; commands can be pasted into a shell
	Commands []Command `json:"commands,omitempty"` // those of the remedy, for a program
	Fixable  bool      `json:"fixable"`            // --fix does it

	Because string `json:"because,omitempty"` // the code of the finding that this one comes of: with that it is gone, too
	Brings  int    `json:"brings,omitempty"`  // how many findings come of this one
}

// Found returns a finding of the kind.
func (c *Code) Found(remedy Remedy, format string, args ...any) Finding {
	return Finding{
		Code: c.Name, Severity: c.Severity, Summary: fmt.Sprintf(format, args...), Meaning: c.Meaning,
		Remedy: remedy.String(), Commands: remedy.Commands(), Fixable: c.Fixable && remedy.Commands() != nil,
	}
}

// IsShown reports whether the finding is for a person to read: what comes of another one is gone with that.
func (f Finding) IsShown() bool { return f.Because == "" }

// Of returns the finding, which is about an attachment.
func (f Finding) Of(attachment string) Finding {
	f.Attachment = attachment
	return f
}

// In returns the finding, which is about a file.
func (f Finding) In(file string) Finding {
	f.File = file
	return f
}

// Severity is how bad a finding is.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // containers don't get a network, or not the one that was meant
	Warning Severity = "warning" // some of it does not work, will stop to, or is dangerous
	Info    Severity = "info"    // good to know
)

// Rank is 0 for the worst, and -1 for what is none.
func (s Severity) Rank() int { return slices.Index([]Severity{Error, Warning, Info}, s) }

// Code is a kind of finding. It is declared beside the check that finds it.
type Code struct {
	Name     string
	Severity Severity
	Meaning  string
	Remedy   string // in general; a finding says it with names and values
	Fixable  bool   // --fix can do it, without a person who looks at it first
	Brings   Codes  // what else is found of it
}

// Codes are kinds of findings.
type Codes []*Code

// Declare adds a kind.
func (c *Codes) Declare(code Code) *Code {
	*c = append(*c, &code)
	return &code
}

// Sorted returns the codes, the worst first.
func (c Codes) Sorted() Codes {
	return slices.SortedFunc(slices.Values(c), func(a, b *Code) int {
		return cmp.Or(a.Severity.Rank()-b.Severity.Rank(), cmp.Compare(a.Name, b.Name))
	})
}

// Find returns the code of a name, nil if there is none.
func (c Codes) Find(name string) *Code {
	if i := slices.IndexFunc(c, func(code *Code) bool { return code.Name == name }); i >= 0 {
		return c[i]
	}
	return nil
}

// Names returns the codes' names.
func (c Codes) Names() (names []string) {
	for _, code := range c {
		names = append(names, code.Name)
	}
	return names
}

// Rows returns the lines of the manual's table.
func (c Codes) Rows() (rows []string) {
	for _, code := range c {
		remedy := code.Remedy
		if code.Fixable {
			remedy += ", `--fix`"
		}
		row := "| `" + code.Name + "` | " + string(code.Severity) + " | " + code.Meaning + " | " + remedy + " |"
		rows = append(rows, strings.Join(strings.Fields(row), " "))
	}
	return rows
}
