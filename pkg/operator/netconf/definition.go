package netconf

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/cnibox/cnibox/pkg/conf"
)

// MultusDir is where Multus looks, unless it is told otherwise, for the network of a definition that has no configuration.
const MultusDir = "/etc/cni/multus/net.d"

// Definition is a NetworkAttachmentDefinition, by which Kubernetes knows a network.
type Definition struct {
	Name   string // the network's too, if its configuration names none
	Config string // JSON; "" if Multus takes the network of this name from a file of the node
	IsText bool   // the configuration is a string: Kubernetes refuses another one
	At     int    // where the configuration stands in the text, or the definition that has none

	places []int // of the configuration's bytes in the text
}

// Offset returns where a byte of the configuration stands in the text.
func (d *Definition) Offset(at int) int {
	switch {
	case len(d.places) == 0:
		return d.At
	case at >= len(d.places):
		return d.places[len(d.places)-1] + 1
	}
	return d.places[at]
}

// IsManifest reports whether a text has objects of Kubernetes in place of a network.
func IsManifest(name string, text []byte) bool {
	ext := filepath.Ext(name)
	switch ext {
	case ".yaml", ".yml":
		return true
	case ".conflist", ".conf":
		return false
	}
	if o, err := conf.Parse(text); err == nil {
		return o.Has("apiVersion") && o.Has("kind")
	}
	if ext == ".json" {
		return false
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			return false
		}
		if len(document.Content) > 0 && valueOf(document.Content[0], "kind") != "" {
			return true // kubectl prints a list without items where there is none
		}
	}
}

// Definitions returns the NetworkAttachmentDefinitions of a manifest, in YAML or in JSON, which is YAML too.
func Definitions(text []byte) (list []Definition, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return list, err
		}
		for _, top := range document.Content {
			objects := []*yaml.Node{top}
			if items := member(top, "items"); items != nil && items.Kind == yaml.SequenceNode { // as kubectl prints several
				objects = append(objects, items.Content...)
			}
			for _, o := range objects {
				if valueOf(o, "kind") == "NetworkAttachmentDefinition" {
					list = append(list, newDefinition(text, o))
				}
			}
		}
	}
}

func newDefinition(text []byte, o *yaml.Node) Definition {
	d := Definition{Name: valueOf(member(o, "metadata"), "name"), At: offset(text, o), IsText: true}
	config := member(member(o, "spec"), "config")
	if config == nil || config.ShortTag() == "!!null" {
		return d
	}
	d.At, d.IsText = offset(text, config), config.ShortTag() == "!!str"
	if d.IsText && strings.TrimSpace(config.Value) != "" {
		d.Config, d.places = config.Value, places(text, d.At, config)
	}
	return d
}

// member returns the value of a key, nil if there is none.
func member(o *yaml.Node, key string) *yaml.Node {
	if o == nil || o.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(o.Content); i += 2 {
		if v := o.Content[i+1]; o.Content[i].Value == key {
			if v.Kind == yaml.AliasNode {
				v = v.Alias
			}
			return v
		}
	}
	return nil
}

// valueOf returns the text at a key, "" if there is none.
func valueOf(o *yaml.Node, key string) string {
	if v := member(o, key); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// offset returns where a node stands.
func offset(text []byte, n *yaml.Node) int {
	at := 0
	for line := 1; line < n.Line; line++ {
		at += bytes.IndexByte(text[at:], '\n') + 1
	}
	for column := 1; column < n.Column && at < len(text); column++ {
		_, size := utf8.DecodeRune(text[at:])
		at += size
	}
	return at
}

// places returns where each byte of a scalar's value stands. The value lacks quotes and escapes of the text, and has white space of its own.
func places(text []byte, at int, n *yaml.Node) (list []int) {
	isDouble, isSingle := n.Style&yaml.DoubleQuotedStyle != 0, n.Style&yaml.SingleQuotedStyle != 0
	switch {
	case isDouble:
		at += bytes.IndexByte(text[at:], '"') + 1
	case isSingle:
		at += bytes.IndexByte(text[at:], '\'') + 1
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		at += bytes.IndexByte(text[at:], '\n') + 1
	}
	is := func(at int, chars string) bool { return at < len(text) && strings.IndexByte(chars, text[at]) >= 0 }
	for value := n.Value; value != ""; {
		r, size := utf8.DecodeRuneInString(value)
		value = value[size:]
		isWhite := strings.ContainsRune(white, r)
		for !isWhite && (is(at, white) || isDouble && is(at, `\`) && is(at+1, "\r\n")) { // indentation, and the ends of lines
			at++
		}
		for range size {
			list = append(list, min(at, len(text)))
		}
		switch {
		case isDouble && is(at, `\`):
			at += lengthOfEscape(text[at:])
		case isSingle && r == '\'':
			at += len("''")
		case isWhite && !is(at, white): // where the text has less of it
		default:
			at += size
		}
	}
	return list
}

func lengthOfEscape(text []byte) int {
	switch {
	case bytes.HasPrefix(text, []byte(`\x`)):
		return len(`\xff`)
	case bytes.HasPrefix(text, []byte(`\u`)):
		return len(`\uffff`)
	case bytes.HasPrefix(text, []byte(`\U`)):
		return len(`\Uffffffff`)
	}
	return len(`\n`)
}

const white = " \t\r\n"
