package explain

import (
	_ "embed" // the tables
	"regexp"
	"strings"
	"sync"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/cnibox/cnibox/pkg/operator/finding"
)

//go:embed messages.yaml
var messagesYAML []byte

// messages returns all known errors. A more special one comes before a more general one.
var messages = sync.OnceValue(func() (list []Known) {
	if err := yaml.Unmarshal(messagesYAML, &list); err != nil {
		panic(err) // a test reads it
	}
	for i := range list {
		list[i].pattern = regexp.MustCompile(list[i].Pattern)
	}
	return list
})

// own.tsv has what cnibox itself says: the code of a finding, if it is one, the message with a sign for what differs, and what to do about it.
// TestOwn makes it from the source.
//
//go:embed own.tsv
var ownTSV string

// leastOfOwn is how many letters a message of our own has to have in common with a text, so that it is no accident.
const leastOfOwn = 12

// ownIn returns our own message that a text has, the longest one if there are several.
func ownIn(text string) []Finding {
	most, code, message, remedy := leastOfOwn-1, "", "", ""
	for line := range strings.Lines(ownTSV) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if n := inCommon(f[1], text); n > most {
			most, code, message, remedy = n, f[0], f[1], f[2]
		}
	}
	switch {
	case message == "":
		return nil
	case code != "":
		return ofCode(code)
	}
	means := "cnibox says this itself: what failed, on what, and why."
	return []Finding{newFinding(&Known{ID: message, Means: means, Do: remedy}, finding.Error, message)}
}

// inCommon returns how many letters of a message are in a text; 0 if not all of it is, in its order.
func inCommon(message, text string) (n int) {
	for part := range strings.SplitSeq(message, "…") {
		_, after, found := strings.Cut(text, part)
		if !found {
			return 0
		}
		text = after
		for _, r := range part {
			if unicode.IsLetter(r) {
				n++
			}
		}
	}
	return n
}
