package explain

import (
	"flag"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/cnibox/cnibox/test/messagetest"
)

const root = "../../../../.."

// TestTexts compares the texts of messages with the lines that are explained, and with the source of those who print them, as far as our go.mod and this
// machine have it. Runtimes are test/runtimes' to look at.
func TestTexts(t *testing.T) {
	rows, sources := messagetest.Table(t, root)
	seen := slices.Concat(slices.Collect(maps.Values(logged(t)))...)
	for _, k := range messages() {
		seen = append(seen, k.Example)
		for _, text := range slices.Concat(slices.Collect(maps.Values(k.Texts))...) {
			isSeen := func(line string) bool { return inCommon(verbs.ReplaceAllString(text, "…"), line) > 0 }
			if !k.pattern.MatchString(verbs.ReplaceAllString(text, "something")) && !slices.ContainsFunc(seen, isSeen) {
				t.Errorf("%s: its pattern does not match %q, and neither its example nor a line of testdata/logs.txt has it", k.ID, text)
			}
		}
	}
	texts := map[string][]messagetest.Text{}
	for of, s := range sources {
		if s.In == "." {
			texts[of] = s.Here(t, root)
		}
	}
	if n := messagetest.Log(t, messagetest.Hold(t, rows, texts)); n < 40 {
		t.Errorf("only %d texts were found", n)
	}
}

var verbs = regexp.MustCompile(`%[a-zA-Z]`)

var fetch = flag.Bool("fetch", false, "fetch the source of all whose messages are known: some hundred MB")

// TestTextsOfAll finds all texts in the source of those who print them, in the versions that sources.yaml names: make test-messages.
func TestTextsOfAll(t *testing.T) {
	if !*fetch {
		t.Skip("the source of all is fetched for a release: make test-messages")
	}
	rows, sources := messagetest.Table(t, root)
	texts := map[string][]messagetest.Text{}
	for of, s := range sources {
		texts[of] = append(s.Fetch(t), s.Here(t, root)...)
	}
	found := messagetest.Hold(t, rows, texts)
	n := messagetest.Log(t, found)
	for of, s := range sources {
		if s.Read != "" {
			t.Logf("not fetched: %s, read by hand: %s", of, s.Read)
		}
	}
	t.Logf("%d texts", n)
}
