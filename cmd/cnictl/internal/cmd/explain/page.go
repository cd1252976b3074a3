package explain

import (
	"regexp"
	"strings"
	"sync"

	"github.com/cnibox/cnibox/docs"
)

// manual is where the page is that has the messages.
const manual = "https://github.com/cnibox/cnibox/blob/main/docs/operate/troubleshooting.md#by-error-message"

var (
	row     = regexp.MustCompile("(?m)^\\| (`.+?`) \\| (.+) \\|$")
	message = regexp.MustCompile("`([^`]+)`")
	link    = regexp.MustCompile(`\[([^\]]+)\]\([^)]*\)`)
)

// onPage returns what the manual's tables say of error messages: what can be looked up there is known here. The runtimes' messages come last,
// and only tell that something failed.
var onPage = sync.OnceValue(func() (list []Known) {
	_, text, _ := strings.Cut(docs.Troubleshooting, "\n## By error message\n")
	text, _, _ = strings.Cut(text, "\n## ")
	own, _, _ := strings.Cut(text, "\n### Messages of runtimes\n")
	for _, r := range row.FindAllStringSubmatchIndex(text, -1) {
		for _, m := range message.FindAllStringSubmatch(text[r[2]:r[3]], -1) {
			list = append(list, Known{
				ID: m[1], pattern: patternOf(m[1]), Wraps: r[0] > len(own), isPage: true, Example: strings.ReplaceAll(m[1], "…", "something"),
				Means: link.ReplaceAllString(text[r[4]:r[5]], "$1"), Do: "see " + manual,
			})
		}
	}
	return list
})

// patternOf makes a regular expression of a message, in which a sign stands for what differs.
func patternOf(message string) *regexp.Regexp {
	var parts []string
	for part := range strings.SplitSeq(message, "…") {
		parts = append(parts, regexp.QuoteMeta(part))
	}
	return regexp.MustCompile(strings.Join(parts, `.*?`))
}
