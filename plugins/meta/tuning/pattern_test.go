package tuning

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"testing"
)

var patterns = []string{
	``, `.`, `^`, `$`, `^$`, `net.ipv4`, `^net\.ipv4\.conf\.IFNAME\.accept_redirects$`, `^net/ipv4/`, `a|b`, `|`, `(a|bc)+d`, `(?:ab)*c`,
	`[a-c_]+x`, `[^a-z/.]`, `[]a]`, `[^]a]`, `[a-]`, `[-a]`, `[\w.]+`, `[\d-]`, `\d+`, `\W`, `\S\s`, `a{2}`, `a{2,}b`, `a{0,2}b`, `a{,2}`, `{`, `a{`, `}`, `]`,
	`(a*)*b`, `(|a)+`, `a*?b`, `a+?`, `a??`, `x*`, `()`, `(^a|b$)`, `\.\*\_\-`, `tcp_(rmem|wmem)$`, `net\.(core|ipv4)\..*[0-9]$`, `a{2}{3}`, `a**`, `*a`,
	`a{1001}`, `a{3,2}`, `(`, `)`, `(a`, `a)`, `[`, `[a`, `[b-a]`, `\`, `\q`, `(?i)a`, `[[:alpha:]]`, `\bnet`, `^*`, `({2})`, `é+`, `[à-ü]`, `a{99999999999999999999}`,
	`a{01}`, `[\d-z]`, `[a-\d]`, `[a-c-e]`, `((((a))))`, `.*.*.*=`, `\_`, `\ `,
}

var texts = []string{
	"", "a", "b", "ab", "abcd", "aab", "bcd", "x", "]", "-", "a{,2}", "net.ipv4.conf.IFNAME.accept_redirects", "net/ipv4/conf/eth0.5/arp_filter",
	"net.core.somaxconn", "net.ipv4.tcp_rmem", "net.ipv4.tcp_rmem.x", " ", "1", "a1 b2", "{", "}", "é", "a\nb", "_-.*",
}

// Patterns that regexp takes and this package need not.
var unsupported = map[string]bool{`(?i)a`: true, `[[:alpha:]]`: true, `\bnet`: true, `({2})`: true}

func TestPatternsMeanWhatRegexpSays(t *testing.T) {
	for _, p := range patterns {
		want, wantErr := regexp.Compile(p)
		got, err := parsePattern(p)
		switch {
		case unsupported[p]:
			if err == nil {
				t.Errorf("pattern %q: no error", p)
			}
			continue
		case (err != nil) != (wantErr != nil):
			t.Errorf("pattern %q: error %v, package regexp: %v", p, err, wantErr)
			continue
		case err != nil:
			continue
		}
		for _, text := range texts {
			if got.matches(text) != want.MatchString(text) {
				t.Errorf("pattern %q on %q: %v, package regexp: %v", p, text, got.matches(text), want.MatchString(text))
			}
		}
	}
}

// FuzzPattern holds that a pattern which is understood means what package
// regexp says, and so also that none is taken which that package refuses.
func FuzzPattern(f *testing.F) {
	for i, p := range patterns {
		f.Add(p, texts[i%len(texts)])
	}
	f.Fuzz(func(t *testing.T, p, text string) {
		if len(p) > 60 || len(text) > 60 {
			return
		}
		got, err := parsePattern(p)
		if err != nil {
			return
		}
		want, err := regexp.Compile(p)
		var limit *syntax.Error
		if errors.As(err, &limit) && limit.Code == syntax.ErrInvalidRepeatSize {
			return // nested repetitions that multiply to more than 1000
		}
		if err != nil {
			t.Fatalf("pattern %q taken, package regexp: %v", p, err)
		}
		if got.matches(text) != want.MatchString(text) {
			t.Fatalf("pattern %q on %q: %v, package regexp: %v", p, text, got.matches(text), want.MatchString(text))
		}
	})
}
