package lint

import (
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

	"github.com/cnibox/cnibox/pkg/keys"
)

// nearest returns the key that was most likely meant, nil if none is near. It is certain if no other is as near.
func nearest(name string, table keys.Table) (best *keys.Key, certain bool) {
	least := 0
	for i := range table {
		switch d := distance(name, table[i].Name); {
		case d > mostDistance(name):
		case best == nil || d < least:
			best, least, certain = &table[i], d, true
		case d == least:
			certain = false
		}
	}
	return best, certain
}

// nearestWord is nearest among words, "" if none is near.
func nearestWord(word string, words []string) string {
	best := ""
	for _, w := range words {
		if d := distance(word, w); d <= mostDistance(word) && (best == "" || d < distance(word, best)) {
			best = w
		}
	}
	return best
}

// distance is how many letters have to be changed, whatever their case and what joins words.
func distance(a, b string) int {
	plain := strings.NewReplacer("_", "", "-", "", " ", "")
	a, b = plain.Replace(strings.ToLower(a)), plain.Replace(strings.ToLower(b))
	if len(a) > 64 || negates(a, b) {
		return len(a) + len(b)
	}
	d := levenshtein.ComputeDistance(a, b)
	if len(a) == len(b) && d == 2 && sameLetters(a, b) { // two were exchanged
		return 1
	}
	return d
}

// switched is how a name begins that turns something on or off.
var switched = regexp.MustCompile(`^(non|not|no|un|dis(able)?|de|in|enable)`)

// negates reports whether two names say the opposite of each other, as far as their beginnings tell: noSnat is no mistake for snat.
func negates(a, b string) bool {
	a, b = strings.TrimPrefix(a, "is"), strings.TrimPrefix(b, "is")
	x, y := switched.ReplaceAllString(a, ""), switched.ReplaceAllString(b, "")
	return a != b && (x == y || x == b || a == y) // de of isDefaultGateway turns nothing off
}

func sameLetters(a, b string) bool {
	x, y := []byte(a), []byte(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// mostDistance is how far a word may be from what was meant.
func mostDistance(word string) int {
	switch {
	case len(word) <= 3:
		return 1
	case len(word) <= 7:
		return 2
	default:
		return 3
	}
}
