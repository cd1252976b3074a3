package sysctl

import (
	"fmt"
	"strings"
)

// Key names a sysctl below net/, the only ones that a network namespace has
// values of its own for.
type Key struct {
	text  string   // as it was written, for messages
	parts []string // directories and file below /proc/sys
}

// placeholder stands for the attachment's interface in keys of a configuration
// that many attachments share.
const placeholder = "IFNAME"

// ParseKey reads a key the way sysctl(8) does. The first separator in it tells
// its form: in net/ipv4/conf/eth0.5/arp_filter dots belong to the names, in
// net.ipv4.conf.eth0/5.arp_filter they separate them and a slash stands for a
// dot within a name. A key that leads out of net/ is an error.
func ParseKey(text string) (Key, error) {
	k := Key{text: text}
	path := text
	if i := strings.IndexAny(text, "./"); i >= 0 && text[i] == '.' {
		path = swapSeparators(text)
	}
	for _, part := range strings.Split(path, "/") {
		switch part {
		case "":
		case ".", "..":
			return Key{}, k.invalid("a part of it is \"" + part + "\"")
		default:
			k.parts = append(k.parts, part)
		}
	}
	switch {
	case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return Key{}, k.invalid("it holds white space or a control character")
	case len(k.parts) < 2 || k.parts[0] != "net":
		return Key{}, k.invalid("it must lie below net")
	}
	return k, nil
}

// ForInterface returns the key with the first IFNAME in it replaced by a link's
// name, which may hold dots but, like all names of links, no slash.
func (k Key) ForInterface(name string) Key {
	for i, part := range k.parts {
		if !strings.Contains(part, placeholder) {
			continue
		}
		parts := append([]string(nil), k.parts...)
		parts[i] = strings.Replace(part, placeholder, name, 1)
		return Key{text: k.text, parts: parts}
	}
	return k
}

// String returns the key as it was written.
func (k Key) String() string { return k.text }

// Path returns the key in the form with slashes. Keys of the same sysctl have
// the same path.
func (k Key) Path() string { return strings.Join(k.parts, "/") }

// describe returns the key as it was written and, if that is not plain from
// it, what it was read as.
func (k Key) describe() string {
	path := k.Path()
	if path == k.text || path == strings.ReplaceAll(k.text, ".", "/") {
		return k.text
	}
	return k.text + " (" + path + ")"
}

func (k Key) invalid(why string) error {
	return fmt.Errorf("invalid net sysctl key %q: %s", k.text, why)
}

func swapSeparators(s string) string {
	return strings.Map(func(c rune) rune {
		switch c {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return c
	}, s)
}
