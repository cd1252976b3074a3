// Package lint finds mistakes in network configurations before a runtime uses them. It reads conflists and files of single plugins, of
// cnibox's plugins and of the reference's, and NetworkAttachmentDefinitions with these. It works on text alone; with a Node it compares the text with a node, too.
package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// codes are the kinds that the checks have declared.
var codes finding.Codes

// Codes returns all kinds of findings, the worst first. docs/operate/lint.md has them as a table.
func Codes() finding.Codes { return codes.Sorted() }

// Finding is one mistake at one place of a file. Its remedy is what to write there.
type Finding struct {
	finding.Finding
	at, end int
	edits   []edit // that write it
}

// MarshalJSON calls what all findings have as lint has always done, too.
func (f Finding) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		finding.Finding
		Message string `json:"message"`
		Fix     string `json:"fix,omitempty"`
	}{f.Finding, f.Summary, f.Remedy})
}

// String returns the finding in one line, as compilers print errors.
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d:%d: %s %s: %s", f.File, f.Line, f.Column, f.Severity, f.Code, f.Summary)
}

// Options are what else is known.
type Options struct {
	Plugins plugin.Table // those whose keys are known

	// Reference is the version of the reference plugins that the files are to work with too, such as 1.4.0; "" is the newest. Keys that
	// only a newer one reads are reported.
	Reference string

	Node *Node // nil is none
}

// Input is a file to look at.
type Input struct {
	Name string // its path, or how messages call it
	Text []byte

	InDir bool // found in a directory, of which runtimes read all
}

// Text looks at one file.
func Text(name string, text []byte, o Options) []Finding {
	return Files([]Input{{Name: name, Text: text}}, o)
}

var fileIgnored = codes.Declare(finding.Code{Name: "file-ignored", Severity: finding.Warning,
	Meaning: "The file has a network, but no extension that libcni reads.",
	Remedy:  "`.conflist`"})

// Files looks at files that are used together, such as those of a directory. The findings come in the order of the files and lines.
func Files(inputs []Input, o Options) []Finding {
	var files []*file
	if o.Node != nil {
		files = o.Node.others(inputs, o)
	}
	others := len(files)
	for _, in := range inputs {
		for _, f := range read(in, o) {
			if in.InDir && !isRead(in.Name) && f.definition == nil && f.top != nil {
				f.report(fileIgnored, span{}, "", nil, "runtimes read .conflist, .conf and .json only, and not this network")
			} else {
				f.check()
			}
			files = append(files, f)
		}
	}
	checkTogether(files)
	list := []Finding{}
	for _, f := range files[others:] {
		if o.Node != nil {
			f.checkNode()
		}
		list = append(list, f.sorted()...)
	}
	return list
}

// sorted returns what was found in the order of the text, each thing once.
func (f *file) sorted() []Finding {
	slices.SortStableFunc(f.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.Severity.Rank(), b.Severity.Rank()), cmp.Compare(a.Code, b.Code))
	})
	return slices.CompactFunc(f.findings, func(a, b Finding) bool { return a.at == b.at && a.Code == b.Code && a.Summary == b.Summary })
}
