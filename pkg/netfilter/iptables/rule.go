package iptables

import (
	"net/netip"
	"regexp"
	"strings"
	"sync"

	"github.com/google/nftables"

	"github.com/cnibox/cnibox/pkg/result"
)

// family is a family of addresses. Each has tables and programs of its own.
type family struct {
	name      string
	program   string // what the names of its programs begin with
	legacy    string // the file that lists the tables that iptables-legacy has
	multicast string
	nft       nftables.TableFamily
}

var (
	ipv4 = family{"ipv4", "iptables", "/proc/thread-self/net/ip_tables_names", "224.0.0.0/4", nftables.TableFamilyIPv4}
	ipv6 = family{"ipv6", "ip6tables", "/proc/thread-self/net/ip6_tables_names", "ff00::/8", nftables.TableFamilyIPv6}
)

func families() []*family { return []*family{&ipv4, &ipv6} }

func familyOf(a netip.Addr) *family {
	if a.Is4() {
		return &ipv4
	}
	return &ipv6
}

// rule is a rule of a table, as iptables-save prints it.
type rule struct {
	family *family
	chain  string
	spec   string
	first  bool // it goes to the head of the chain
	common bool // somebody else may have made it for himself: it is removed only if it was not there before us
	owner  owner
}

func (r rule) String() string { return "-A " + r.chain + " " + r.spec }

// add and remove are lines of iptables-restore. The latter fails if the rule is not there.
func (r rule) add() string {
	if r.first {
		return "-I " + r.chain + " " + r.spec
	}
	return r.String()
}

func (r rule) remove() string { return "-D " + r.chain + " " + r.spec }

// option returns the word that follows a name, "" if there is none.
func (r rule) option(name string) string {
	_, rest, _ := strings.Cut(" "+withoutQuoted(r.spec), " "+name+" ")
	word, _, _ := strings.Cut(rest, " ")
	return word
}

// withoutQuoted returns a rule without words that have quotes, which are not ours to read: comments of conditions.
func withoutQuoted(spec string) string {
	if !strings.Contains(spec, `"`) {
		return spec
	}
	return quoted().ReplaceAllString(spec, `""`)
}

// quoted matches such a word. It is not compiled for calls that have none to look for.
var quoted = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"(\\.|[^"\\])*"`) })

// target returns what the rule jumps to, which comes last: a condition may have a word that looks like the option.
func (r rule) target() string {
	spec := " " + withoutQuoted(r.spec)
	i := strings.LastIndex(spec, " -j ")
	if i < 0 {
		return ""
	}
	word, _, _ := strings.Cut(spec[i+len(" -j "):], " ")
	return word
}

// id is equal for two texts of one rule. Those that lead to a container's port maps are known by their ports: conditions are
// in them in the words of the configuration, which iptables-save prints in others.
func (r rule) id() string {
	spec := r.spec
	if target := r.target(); strings.HasPrefix(target, portsPrefix) {
		spec = strings.Join([]string{r.option("-p"), r.option("--dports"), target}, " ")
	}
	return strings.Join([]string{r.family.name, r.chain, spec}, " ")
}

// ofFamily returns the rules of one family.
func ofFamily(f *family, rules []rule) []rule {
	return filter(rules, func(r rule) bool { return r.family == f })
}

// missing returns the rules that others lack, each once.
func missing(rules, others []rule) []rule {
	seen := ids(others)
	return filter(rules, func(r rule) bool {
		id := r.id()
		again := seen[id]
		seen[id] = true
		return !again
	})
}

func ids(rules []rule) map[string]bool {
	set := make(map[string]bool, len(rules))
	for _, r := range rules {
		set[r.id()] = true
	}
	return set
}

func filter[T any](list []T, isWanted func(T) bool) (wanted []T) {
	for _, v := range list {
		if isWanted(v) {
			wanted = append(wanted, v)
		}
	}
	return wanted
}

// single returns an address as rules have it.
func single(a netip.Addr) string { return result.Single(a).String() }

// isPlain reports whether a word is one for iptables-restore without quotes.
func isPlain(word string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,+!@%=~[]"
	return word != "" && strings.Trim(word, plain) == ""
}

// isName reports whether a word can be a name in rules.
func isName(word string, longest int) bool {
	return isPlain(word) && len(word) <= longest && !strings.ContainsAny(word[:1], "-!:")
}

// quote writes a word so that iptables-restore reads the same one.
func quote(word string) string {
	if isPlain(word) {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// maxWord is more than any word has use for; iptables-restore reads lines of 10 KiB at most.
const maxWord = 512

// isQuotable reports whether iptables-restore can be given the word at all.
func isQuotable(word string) bool {
	return word != "" && len(word) <= maxWord && !strings.ContainsFunc(word, func(c rune) bool { return c < ' ' || c == 0x7f })
}
