package doctor

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/finding"
)

// Finding is something on this node that is worth a person's attention.
type Finding struct {
	Code     string           `json:"code"`
	Severity finding.Severity `json:"severity"`
	Network  string           `json:"network,omitempty"` // the one that it is about, if it is about one
	Summary  string           `json:"summary"`           // what is, with this node's names and values
	Meaning  string           `json:"meaning"`           // why it matters
	Remedy   string           `json:"remedy,omitempty"`  // commands that mend it, to be pasted into a shell
	Fixable  bool             `json:"fixable"`           // Fix runs them
}

// codes are the kinds that the checks have declared.
var codes finding.Codes

// Codes returns all kinds of findings, the worst first. docs/operate/cnictl.md has them as a table.
func Codes() finding.Codes { return codes.Sorted() }

// found makes a finding. Where no command mends it, the remedy is a comment of the shell.
func found(code *finding.Code, network, remedy, format string, args ...any) Finding {
	return Finding{
		Code: code.Name, Severity: code.Severity, Network: network, Summary: fmt.Sprintf(format, args...), Meaning: code.Meaning,
		Remedy: remedy, Fixable: code.Fixable && remedy != "",
	}
}

// plainWord matches what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote writes a word so that a shell takes it as one, whatever is in it.
func quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// command writes a command line.
func command(words ...string) string {
	quoted := make([]string, 0, len(words))
	for _, w := range words {
		quoted = append(quoted, quote(w))
	}
	return strings.Join(quoted, " ")
}

// lines joins commands, each in a line of its own.
func lines(commands ...string) string { return strings.Join(commands, "\n") }

// comment writes a line that a shell passes over.
func comment(format string, args ...any) string {
	return "# " + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
}

// some lists the first of many names.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// count writes a number of things.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
