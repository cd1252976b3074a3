package tuning

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// pattern is a regular expression of the kind that lines of the allowlist are:
// characters, ".", classes, groups, "|", repetitions, "^" and "$", with the
// meaning they have in Go's package regexp, which the reference plugin uses.
// (Linking that package would cost every plugin call 3 % of its start-up for
// tables of Unicode classes.) What is not understood is an error.
type pattern struct {
	alternatives []sequence
}

// sequence is pieces that follow each other.
type sequence []piece

// piece is an atom and how often it may stand there.
type piece struct {
	atom     atom
	min, max int // max is unlimited for no limit
}

const unlimited = -1

// maxRepeat is the largest number in {n,m}, as in package regexp.
const maxRepeat = 1000

// atom tells where a match can go on: it returns the offsets in text that are
// behind it when it starts at one of the given ones.
type atom func(text []rune, from offsets) offsets

// offsets is a set of places in a text: offsets[i] stands for the place before
// the i-th character. Sets, in place of trying one way after the other, bound
// the time of a match whatever the pattern.
type offsets []bool

// matches tells whether the pattern matches text or a part of it.
func (p *pattern) matches(text string) bool {
	runes := []rune(text)
	from := make(offsets, len(runes)+1)
	for i := range from {
		from[i] = true
	}
	return slices.Contains(p.match(runes, from), true)
}

func (p *pattern) match(text []rune, from offsets) offsets {
	to := make(offsets, len(from))
	for _, s := range p.alternatives {
		to.add(s.match(text, from))
	}
	return to
}

func (s sequence) match(text []rune, from offsets) offsets {
	for _, p := range s {
		from = p.match(text, from)
	}
	return from
}

func (p piece) match(text []rune, at offsets) offsets {
	for range p.min {
		next := p.atom(text, at)
		if slices.Equal(next, at) {
			break // and so it would stay
		}
		at = next
	}
	to := slices.Clone(at)
	for n := p.min; n != p.max; n++ {
		at = p.atom(text, at)
		if !to.add(at) {
			break
		}
	}
	return to
}

// add adds the places of another set and tells whether there were new ones.
func (o offsets) add(other offsets) (grown bool) {
	for i, in := range other {
		if in && !o[i] {
			o[i] = true
			grown = true
		}
	}
	return grown
}

// one is the atom of one character that satisfies is.
func one(is func(rune) bool) atom {
	return func(text []rune, from offsets) offsets {
		to := make(offsets, len(from))
		for i, c := range text {
			to[i+1] = from[i] && is(c)
		}
		return to
	}
}

// start and end are the atoms "^" and "$".
func start(_ []rune, from offsets) offsets { return only(from, 0) }
func end(_ []rune, from offsets) offsets   { return only(from, len(from)-1) }

func only(from offsets, i int) offsets {
	to := make(offsets, len(from))
	to[i] = from[i]
	return to
}

// parsePattern reads a pattern.
func parsePattern(text string) (*pattern, error) {
	p := &patternParser{rest: []rune(text)}
	parsed, err := p.alternatives()
	switch {
	case err != nil:
	case strings.ToValidUTF8(text, "") != text:
		err = fmt.Errorf("it is not UTF-8")
	case len(p.rest) > 0:
		err = fmt.Errorf("%q without the parenthesis that opens it", p.rest[0])
	}
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", text, err)
	}
	return parsed, nil
}

// patternParser reads from the front of rest.
type patternParser struct {
	rest  []rune
	depth int // of groups
}

// maxDepth bounds how deep groups nest: the time of a match may multiply with
// each level.
const maxDepth = 5

// alternatives reads up to the end or a closing parenthesis.
func (p *patternParser) alternatives() (*pattern, error) {
	parsed := &pattern{}
	for {
		s, err := p.sequence()
		if err != nil {
			return nil, err
		}
		parsed.alternatives = append(parsed.alternatives, s)
		if !p.take("|") {
			return parsed, nil
		}
	}
}

func (p *patternParser) sequence() (sequence, error) {
	var s sequence
	for len(p.rest) > 0 && p.rest[0] != '|' && p.rest[0] != ')' {
		a, err := p.atom()
		if err != nil {
			return nil, err
		}
		one, err := p.repetition(a)
		if err != nil {
			return nil, err
		}
		s = append(s, one)
	}
	return s, nil
}

func (p *patternParser) atom() (atom, error) {
	switch {
	case p.take("(?:"), p.take("("):
		return p.group()
	case p.take("["):
		is, err := p.class()
		return one(is), err
	case p.take("."):
		return one(func(c rune) bool { return c != '\n' }), nil
	case p.take("^"):
		return start, nil
	case p.take("$"):
		return end, nil
	case p.take(`\`):
		is, err := p.escape()
		return one(is), err
	}
	c := p.rest[0]
	if _, _, is := p.bounds(); is || strings.ContainsRune("*+?", c) {
		return nil, fmt.Errorf("nothing before %q to repeat", c)
	}
	p.rest = p.rest[1:]
	return one(func(got rune) bool { return got == c }), nil
}

func (p *patternParser) group() (atom, error) {
	if p.take("?") {
		return nil, fmt.Errorf("groups with options, (?…), are not supported")
	}
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxDepth {
		return nil, fmt.Errorf("groups nest deeper than %d levels", maxDepth)
	}
	inner, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, fmt.Errorf("a parenthesis is not closed")
	}
	return inner.match, nil
}

// repetition reads what may stand behind an atom: *, +, ?, {n}, {n,}, {n,m},
// with a ? for preferring few, which makes no difference here.
func (p *patternParser) repetition(a atom) (piece, error) {
	r := piece{a, 1, 1}
	switch {
	case p.take("*"):
		r.min, r.max = 0, unlimited
	case p.take("+"):
		r.max = unlimited
	case p.take("?"):
		r.min = 0
	default:
		b, length, is := p.bounds()
		if !is {
			return r, nil
		}
		p.rest = p.rest[length:]
		r.min, r.max = b[0], b[1]
	}
	if r.min > maxRepeat || r.max > maxRepeat || r.max != unlimited && r.min > r.max {
		return r, fmt.Errorf("{%d,%d} is no range up to %d", r.min, r.max, maxRepeat)
	}
	p.take("?")
	if _, _, is := p.bounds(); is || len(p.rest) > 0 && strings.ContainsRune("*+?", p.rest[0]) {
		return r, fmt.Errorf("a repetition is repeated: put it in parentheses")
	}
	return r, nil
}

// bounds looks whether {n}, {n,} or {n,m} comes next, and how long it is. A
// brace in front of anything else stands for itself.
func (p *patternParser) bounds() (bounds [2]int, length int, is bool) {
	if len(p.rest) == 0 || p.rest[0] != '{' {
		return bounds, 0, false
	}
	close := slices.Index(p.rest, '}')
	if close < 0 {
		return bounds, 0, false
	}
	low, high, two := strings.Cut(string(p.rest[1:close]), ",")
	bounds = [2]int{repeat(low), repeat(high)}
	switch {
	case !two:
		bounds[1] = bounds[0]
	case high == "":
		bounds[1] = unlimited
	case bounds[1] < 0:
		return bounds, 0, false
	}
	return bounds, close + 1, bounds[0] >= 0
}

// repeat reads a number in braces; -1 is none. A number that is too large for
// an int is too large for a repetition, too.
func repeat(s string) int {
	if s == "" || strings.Trim(s, "0123456789") != "" || len(s) > 1 && s[0] == '0' {
		return -1
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return maxRepeat + 1
	}
	return n
}

// class reads what stands in brackets.
func (p *patternParser) class() (func(rune) bool, error) {
	not := p.take("^")
	var members []func(rune) bool
	for first := true; first || len(p.rest) > 0 && p.rest[0] != ']'; first = false {
		m, err := p.member()
		if err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	if !p.take("]") {
		return nil, openClass()
	}
	return func(c rune) bool {
		in := slices.ContainsFunc(members, func(m func(rune) bool) bool { return m(c) })
		return in != not
	}, nil
}

func openClass() error { return fmt.Errorf("a bracket is not closed") }

// member reads one item of a class: a character, a range, or an escape.
func (p *patternParser) member() (func(rune) bool, error) {
	if p.next("[:") {
		return nil, fmt.Errorf("named classes, [:…:], are not supported")
	}
	low, set, err := p.classCharacter()
	if err != nil || set != nil {
		return set, err
	}
	high := low
	if p.next("-") && !p.next("-]") {
		p.take("-")
		high, set, err = p.classCharacter()
		if err != nil {
			return nil, err
		}
		if set != nil || high < low {
			return nil, fmt.Errorf("a range in brackets, from %q, has no end behind it", low)
		}
	}
	return func(c rune) bool { return low <= c && c <= high }, nil
}

// classCharacter reads one character in brackets, or an escape that stands for
// several.
func (p *patternParser) classCharacter() (c rune, set func(rune) bool, err error) {
	if len(p.rest) == 0 {
		return 0, nil, openClass()
	}
	if p.take(`\`) {
		return p.escaped()
	}
	c = p.rest[0]
	p.rest = p.rest[1:]
	return c, nil, nil
}

func (p *patternParser) escape() (func(rune) bool, error) {
	c, set, err := p.escaped()
	if set == nil {
		set = func(got rune) bool { return got == c }
	}
	return set, err
}

// escaped reads what stands behind a backslash: a punctuation mark, which then
// stands for itself, or the letter of a class.
func (p *patternParser) escaped() (c rune, set func(rune) bool, err error) {
	if len(p.rest) == 0 {
		return 0, nil, fmt.Errorf("a backslash at the end")
	}
	c = p.rest[0]
	p.rest = p.rest[1:]
	switch c {
	case 'd':
		return 0, isDigit, nil
	case 'w':
		return 0, isWord, nil
	case 's':
		return 0, isSpace, nil
	case 'D':
		return 0, func(c rune) bool { return !isDigit(c) }, nil
	case 'W':
		return 0, func(c rune) bool { return !isWord(c) }, nil
	case 'S':
		return 0, func(c rune) bool { return !isSpace(c) }, nil
	}
	if c > 0x7f || isWord(c) && c != '_' {
		return 0, nil, fmt.Errorf(`\%c is not supported`, c)
	}
	return c, nil, nil
}

func isDigit(c rune) bool { return c >= '0' && c <= '9' }

func isWord(c rune) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

func isSpace(c rune) bool { return strings.ContainsRune("\t\n\f\r ", c) }

// next tells whether text, of ASCII characters, comes next.
func (p *patternParser) next(text string) bool {
	return len(p.rest) >= len(text) && string(p.rest[:len(text)]) == text
}

func (p *patternParser) take(text string) bool {
	if !p.next(text) {
		return false
	}
	p.rest = p.rest[len(text):]
	return true
}
