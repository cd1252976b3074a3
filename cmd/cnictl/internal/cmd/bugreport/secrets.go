package bugreport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// leftOut stands for what is left out.
const leftOut = "***"

// secrets takes out of texts what nobody else should see. A secret that it has found in one place is taken out everywhere.
type secrets struct {
	lock   sync.Mutex      // a part that was given up may go on
	values map[string]bool // that are known to be secret
	short  int             // how many are too short to be looked for

	plugins      plugin.Table
	own, foreign visible // in objects of our plugins, and of others
}

func newSecrets(plugins plugin.Table) *secrets {
	s := &secrets{values: map[string]bool{}, plugins: plugins, own: visible{}, foreign: visible{}}
	for _, row := range plugins {
		set := row.Plugin.(plugin.Configured).Keys() // a test of the table makes sure that it is one
		for _, table := range []keys.Table{set.Own, set.Runtime, set.Args} {
			s.own.add(table)
		}
	}
	for _, key := range slices.Concat(ofAll, ofResults) {
		if _, isDeclared := s.own[key]; !isDeclared {
			s.own[key] = false
		}
	}
	for _, key := range ofAll {
		s.foreign[key] = false
	}
	return s
}

// seen are the names of what is not left out of configurations and results.
type seen struct {
	Keys         []string `json:"keys"`         // of our plugins, of results and of libcni
	OthersKeys   []string `json:"othersKeys"`   // of others' plugins
	Capabilities []string `json:"capabilities"` // of what runtimes pass to plugins
	Arguments    []string `json:"arguments"`    // of CNI_ARGS
}

func (s *secrets) seen() seen {
	names := func(v visible) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(v)), hides)
	}
	return seen{names(s.own), names(s.foreign), capabilities, []string{"IgnoreUnknown", podArguments + "*"}}
}

func (s *secrets) count() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.values) + s.short
}

// known returns the values, of two that begin with the same the longer one first.
func (s *secrets) known() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.SortedFunc(maps.Keys(s.values), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
}

// shortest is how long a value must be to be looked for in all texts. Shorter ones are in many words that are harmless.
const shortest = 8

// note notes that a value is secret.
func (s *secrets) note(value string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(value) < shortest {
		s.short++
		return
	}
	s.values[value] = true
}

// hides reports whether the value of a key is left out, by the key's name.
func hides(key string) bool { return secretKey.MatchString(key) }

var secretKey = regexp.MustCompile(`(?i)pass|pwd|secret|token|credential|auth|cookie|private|psk|key|^env|^args$`)

var privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`)

// forms find what is secret in a line of any kind: by the name that it is assigned to, by the flag that it is given to, and by its form.
var forms = []*regexp.Regexp{
	regexp.MustCompile(`(?i)((?:pass|pwd|secret|token|credential|auth|cookie|psk|api_?-?key|private_?-?key|access_?-?key|key-data)[\w.-]*\\?["']?\s*[:=]\s*)` +
		`(\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"?|'[^']*'?|(?:(?i:bearer|basic) )?[^\s,;&"'}\]]+)`),
	regexp.MustCompile(`(?i)((?:^|[\s"'])--?[\w-]*(?:passw|secret|token|credential|api-?key|private-?key)[\w-]*\s+)("[^"]*"?|'[^']*'?|\S+)`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)([\w.~+/=-]{8,})`),
	regexp.MustCompile(`(://)([^/\s@"']+)@`),                         // https://TOKEN@host
	regexp.MustCompile(`([\w.-]+:)([^\s@/"':]+)@`),                   // me:password@tcp(10.0.0.1)/db
	regexp.MustCompile(`(://[^\s"'?]+\?)([^\s"']+)`),                 // a signed address
	regexp.MustCompile(`((?:^|[\s"'])(?:-u|--user)[\s=]+)(\S+:\S+)`), // of curl
	regexp.MustCompile(`(?i)(\bx-[\w-]+:\s*)([^\s"']+)`),             // a header
	regexp.MustCompile(`(?i)(\b(?:psk|password|passphrase|secret|token)\s+)([^\s"'=:]{6,})`),
	regexp.MustCompile(`()(\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*)`), // a JSON web token
}

// marks are what a line has that one of the forms may match. It is looked for first: that is much faster.
var marks = []string{"pass", "pwd", "secret", "token", "credential", "auth", "cookie", "psk", "key", "bearer", "basic", "://", "eyj", "cni_args", "@", "-u", "x-", "passphrase"}

var cniArgs = regexp.MustCompile(`(CNI_ARGS\\?["']?\s*[:=]\s*\\?["']?)([^\s"'\\]+)`)

// scrub returns a text without what looks like a secret.
func (s *secrets) scrub(text []byte) []byte {
	text = privateKey.ReplaceAll(text, []byte(leftOut))
	var clean []byte
	for line := range bytes.Lines(text) {
		small := bytes.ToLower(line)
		if slices.ContainsFunc(marks, func(mark string) bool { return bytes.Contains(small, []byte(mark)) }) {
			line = s.scrubLine(line)
		}
		clean = append(clean, line...)
	}
	return clean
}

// scrubKnown returns a text without the values that are known to be secret.
func (s *secrets) scrubKnown(text []byte) []byte {
	for _, v := range s.known() {
		text = bytes.ReplaceAll(text, []byte(v), []byte(leftOut))
		if escaped, err := json.Marshal(v); err == nil {
			text = bytes.ReplaceAll(text, escaped[1:len(escaped)-1], []byte(leftOut))
		}
	}
	return text
}

func (s *secrets) scrubLine(line []byte) []byte {
	line = cniArgs.ReplaceAllFunc(line, func(found []byte) []byte {
		parts := cniArgs.FindSubmatch(found)
		return append(bytes.Clone(parts[1]), s.arguments(string(parts[2]))...)
	})
	for _, form := range forms {
		line = form.ReplaceAllFunc(line, func(found []byte) []byte {
			parts := form.FindSubmatchIndex(found)
			before, value, after := found[:parts[3]], found[parts[4]:parts[5]], found[parts[5]:]
			return slices.Concat(before, quoted(value), after)
		})
	}
	return line
}

// quoted returns what stands for a value, in its quotes if it has some.
func quoted(value []byte) []byte {
	for _, quote := range []string{`\"`, `"`, `'`} {
		if bytes.HasPrefix(value, []byte(quote)) {
			return []byte(quote + leftOut + quote)
		}
	}
	return []byte(leftOut)
}

// arguments returns a CNI_ARGS with the names of pods, and no other values.
func (s *secrets) arguments(text string) string {
	pairs := strings.Split(text, ";")
	for i, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if ok && !isHarmless(name) {
			s.note(value)
			pairs[i] = name + "=" + leftOut
		}
	}
	return strings.Join(pairs, ";")
}

// isHarmless reports whether an argument of CNI_ARGS may be seen.
func isHarmless(name string) bool {
	return name == "IgnoreUnknown" || strings.HasPrefix(name, podArguments)
}

// podArguments are what the names of arguments begin with that say which pod it is.
const podArguments = "K8S_POD_"
