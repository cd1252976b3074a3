package schema

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/cnibox/cnibox/pkg/keys"
)

// Page returns the tables of the manual.
func Page(s keys.Set) string {
	var b strings.Builder
	if len(s.Own) == 0 {
		b.WriteString("None.\n")
	} else {
		writeTable(&b, s.Own)
	}
	if len(s.Runtime) > 0 {
		b.WriteString("\nThe runtime fills in these, if `capabilities` has their names:\n\n")
		writeTable(&b, s.Runtime)
	}
	if len(s.Args) > 0 {
		b.WriteString("\nThese can be in the object `cni` of `args`:\n\n")
		writeTable(&b, s.Args)
	}
	return b.String()
}

func writeTable(b *strings.Builder, t keys.Table) {
	b.WriteString("| key | type | default | what it does |\n|---|---|---|---|\n")
	writeRows(b, t, "")
}

// writeRows writes a row for each key, and for each of the keys below it, which stand in the object with the prefix.
func writeRows(b *strings.Builder, t keys.Table, prefix string) {
	for _, k := range t {
		fallback := k.Default
		if k.Required {
			fallback = "required"
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s |\n", prefix, k.Name, kind(k), fallback, k.Doc+since(k))
		if !k.Brief {
			writeRows(b, k.Keys, prefix+k.Name+elements[k.Type]+".")
		}
	}
}

// elements is how the manual writes that a key is one of each element's.
var elements = map[keys.Type]string{keys.Objects: "[]", keys.ObjectLists: "[][]"}

// kind is the type as the manual shows it, with what the value may be.
func kind(k keys.Key) string {
	switch {
	case k.Words != nil:
		quoted := make([]string, 0, len(k.Words))
		for _, w := range k.Words {
			quoted = append(quoted, "`"+w+"`")
		}
		words := strings.Join(quoted, ", ")
		if k.Type == keys.Strings {
			return "list of " + words
		}
		return words
	case k.Range != nil:
		return "int, " + span(*k.Range)
	case k.Form != keys.Any && k.Type == keys.Strings:
		return "list: " + string(k.Form)
	case k.Form != keys.Any:
		return string(k.Form)
	}
	return string(k.Type)
}

// span says what a number may be.
func span(r keys.Range) string {
	text := fmt.Sprintf("%d to %d", r.Min, r.Max)
	if r.Max > 1<<40 {
		text = fmt.Sprintf("%d or more", r.Min)
	}
	switch {
	case r.Negative:
		return text + "; 0 and below: as if left out"
	case r.Zero && r.Min > 0:
		return text + "; 0: as if left out"
	}
	return text
}

// since says where the key can be used.
func since(k keys.Key) string {
	switch {
	case k.Since == keys.Ours:
		return " *cnibox only.*"
	case strings.Contains(k.Since, " "):
		return " *In the reference plugin " + k.Since + ".*"
	case k.Since != "":
		return " *In the reference plugin since " + k.Since + ".*"
	}
	return ""
}

var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// plain takes the marks of Markdown out of a text.
func plain(markdown string) string {
	return strings.NewReplacer("`", "", "*", "").Replace(link.ReplaceAllString(markdown, "$1"))
}
