package nft

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// ParseConditions tells whether words, the value of a configuration's key, are
// in the part of nft's language that this backend has. The family is
// unix.AF_INET or unix.AF_INET6.
//
//	conditions: condition…
//	condition:  [ip | ip6] (saddr | daddr) [op] (address | prefix | list)
//	            [meta] iifname [op] (name | prefix* | list)
//	            [meta] mark [op] (number[/mask] | list)
//	            [meta] mark (and | &) mask [op] (number | list)
//	op:         == | eq | != | ne
//	list:       { value, … }
//
// Where words are cut does not matter: "ip saddr 10.0.0.0/8" may be one or
// three.
func ParseConditions(key string, words []string, family int) error {
	f := &ipv4
	if family == unix.AF_INET6 {
		f = &ipv6
	}
	_, err := parseConditions(key, words, f)
	return err
}

func parseConditions(key string, words []string, f *family) (conditions, error) {
	p := parser{key: key, family: f, tokens: tokenize(strings.Join(words, " "))}
	var c conditions
	lists, values := 0, 0
	for len(p.tokens) > 0 {
		x, err := p.condition()
		if err != nil {
			return conditions{}, err
		}
		x.normalize()
		c.list = append(c.list, x)
		values += len(x.values)
		if !x.negated && len(x.values) > 1 {
			lists++
		}
	}
	if lists > maxLists || values > maxValues {
		return conditions{}, p.fail("has %d lists and %d values, and may have %d and %d", lists, values, maxLists, maxValues)
	}
	c.identify()
	return c, nil
}

// tokenize splits text at spaces and around signs. What is in quotes is one
// token, without the quotes; one that does not end keeps the quote.
func tokenize(text string) []string {
	var tokens []string
	for {
		text = strings.TrimLeft(text, " \t\r\n")
		if text == "" {
			return tokens
		}
		n := tokenLen(text)
		tokens = append(tokens, unquote(text[:n]))
		text = text[n:]
	}
}

// tokenLen returns the length of the token that text begins with.
func tokenLen(text string) int {
	switch {
	case strings.HasPrefix(text, "!="), strings.HasPrefix(text, "=="):
		return 2
	case strings.IndexByte("{},&!=", text[0]) >= 0:
		return 1
	case text[0] == '"':
		if end := strings.IndexByte(text[1:], '"'); end >= 0 {
			return end + 2
		}
		return len(text)
	}
	if end := strings.IndexAny(text, " \t\r\n{},&!=\""); end >= 0 {
		return end
	}
	return len(text)
}

func unquote(token string) string {
	if len(token) > 1 && token[0] == '"' && token[len(token)-1] == '"' {
		return token[1 : len(token)-1]
	}
	return token
}

// parser reads conditions from its tokens.
type parser struct {
	key    string
	family *family
	tokens []string
}

// next takes a token, "" behind the last.
func (p *parser) next() string {
	token := p.peek()
	if len(p.tokens) > 0 {
		p.tokens = p.tokens[1:]
	}
	return token
}

func (p *parser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

// take takes the next token if it is one of those.
func (p *parser) take(tokens ...string) bool {
	for _, t := range tokens {
		if len(p.tokens) > 0 && p.tokens[0] == t {
			p.tokens = p.tokens[1:]
			return true
		}
	}
	return false
}

func (p *parser) fail(format string, args ...any) error {
	return plugin.ConfigError(
		`use "saddr", "daddr", "iifname" and "mark" of nft's language, each with one value or with {a, list}, and with "!=" to negate it; or, with backend "iptables", the words of iptables`,
		"%s: %s", p.key, fmt.Sprintf(format, args...))
}

func (p *parser) unexpected(token, instead string) error {
	if token == "" {
		return p.fail("ends where there should be %s", instead)
	}
	return p.fail("%q stands where there should be %s", token, instead)
}

func (p *parser) condition() (condition, error) {
	const what = "saddr, daddr, iifname or mark"
	isMeta, isIP := p.take("meta"), false
	if !isMeta {
		isIP = p.take("ip" + strings.TrimPrefix(p.family.digit, "4"))
	}
	token := p.next()
	switch f := field(token); {
	case f == fieldSrc && !isMeta, f == fieldDst && !isMeta:
		return p.comparison(condition{field: f}, "an address or network", p.network)
	case f == fieldInLink && !isIP:
		return p.comparison(condition{field: f}, "a link's name", link)
	case f == fieldMark && !isIP:
		return p.mark()
	case (token == "ip" || token == "ip6") && !isMeta && !isIP:
		return condition{}, p.fail("%q never matches connections of IPv%s, which these conditions are for", token, p.family.digit)
	}
	return condition{}, p.unexpected(token, what)
}

func (p *parser) mark() (condition, error) {
	c := condition{field: fieldMark}
	if !p.take("and", "&") {
		return p.comparison(c, "a mark", maskedMark)
	}
	token := p.next()
	mask, err := number(token)
	if err != nil {
		return c, p.unexpected(token, "a mask")
	}
	return p.comparison(c, "a mark within the mask", func(token string) (value, bool) {
		mark, err := number(token)
		return value{mark: mark, mask: mask}, err == nil && mark&^mask == 0
	})
}

// comparison reads an operator, and a value or a list of them.
func (p *parser) comparison(c condition, what string, read func(string) (value, bool)) (condition, error) {
	if c.negated = p.take("!=", "ne"); !c.negated {
		p.take("==", "eq")
	}
	one := func() error {
		token := p.next()
		v, ok := read(token)
		if !ok {
			return p.unexpected(token, what)
		}
		c.values = append(c.values, v)
		return nil
	}
	if !p.take("{") {
		return c, one()
	}
	for {
		if err := one(); err != nil {
			return c, err
		}
		comma := p.take(",")
		if p.take("}") {
			return c, nil
		}
		if !comma {
			return c, p.unexpected(p.next(), `"," or "}"`)
		}
	}
}

func (p *parser) network(token string) (value, bool) {
	network, err := netip.ParsePrefix(token)
	if err != nil {
		addr, err := netip.ParseAddr(token)
		if err != nil || addr.Zone() != "" {
			return value{}, false
		}
		network = netip.PrefixFrom(addr, addr.BitLen())
	}
	return value{network: network.Masked()}, familyOf(network.Addr()) == p.family
}

// link reads the name of a link. A * stands for the rest of the name, and is
// nowhere else.
func link(token string) (value, bool) {
	if token == "" || token == "*" || len(strings.TrimSuffix(token, "*")) >= unix.IFNAMSIZ {
		return value{}, false
	}
	if strings.ContainsAny(strings.TrimSuffix(token, "*"), "/*\\{},&!=\" \t\r\n") {
		return value{}, false
	}
	return value{link: token}, true
}

func maskedMark(token string) (value, bool) {
	text, maskText, masked := strings.Cut(token, "/")
	mark, err := number(text)
	if err != nil {
		return value{}, false
	}
	mask := ^uint32(0)
	if masked {
		if mask, err = number(maskText); err != nil {
			return value{}, false
		}
	}
	return value{mark: mark, mask: mask}, mark&^mask == 0
}

// number reads a decimal or hexadecimal number.
func number(token string) (uint32, error) {
	digits, base := token, 10
	if hex, ok := strings.CutPrefix(strings.ToLower(token), "0x"); ok {
		digits, base = hex, 16
	}
	n, err := strconv.ParseUint(digits, base, 32)
	return uint32(n), err
}
