// Package finding has what doctor and lint say of what they find: how bad it is, and of which kind.
package finding

import (
	"slices"
	"strings"
)

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

// Code is a kind of finding.
type Code struct {
	Name     string
	Severity Severity
	Meaning  string
	Remedy   string // in general; a finding says it with names and values
	Fixable  bool   // --fix can do it, without a person who looks at it first
}

// Codes are kinds of findings, the worst first.
type Codes []Code

// Find returns the code of a name, which is one of them.
func (c Codes) Find(name string) Code {
	return c[slices.IndexFunc(c, func(code Code) bool { return code.Name == name })]
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
