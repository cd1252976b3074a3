package iptables

import "strings"

// words splits a line as iptables-restore does: at blanks, except between double
// quotes, where a backslash makes the next character an ordinary one. The line
// is not ok when a quote is left open.
func words(line string) (list []string, ok bool) {
	var word strings.Builder
	quoted, escaped, started := false, false, false
	for i := range len(line) {
		c := line[i]
		switch {
		case escaped:
			escaped = false
			word.WriteByte(c)
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted, started = !quoted, true
		case !quoted && (c == ' ' || c == '\t' || c == '\n'):
			if started {
				list = append(list, word.String())
				word.Reset()
				started = false
			}
		default:
			word.WriteByte(c)
			started = true
		}
	}
	if started {
		list = append(list, word.String())
	}
	return list, !quoted && !escaped
}

// quote writes a word so that iptables-restore reads the same one.
func quote(word string) string {
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// plain are the characters that need no quotes.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,+!@%=~[]"

// maxWord is more than any word has use for; iptables-restore reads lines of
// 10 KiB at most.
const maxWord = 512

// quotable tells whether iptables-restore can be given the word at all.
func quotable(word string) bool {
	if word == "" || len(word) > maxWord {
		return false
	}
	return strings.IndexFunc(word, func(c rune) bool { return c < ' ' || c == 0x7f }) < 0
}
