package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/cnibox/cnibox/pkg/operator/finding"
)

// mostBrackets bounds how deep the parser has to go: it calls itself.
const mostBrackets = 10000

var notJSON = codes.Declare(finding.Code{Name: "not-json", Severity: finding.Error, Fixable: true,
	Meaning: "The file is not JSON. libcni refuses it, and with it networks in files behind it.",
	Remedy:  "what JSON wants there"})

// readText parses the text as JSON.
func (f *file) readText() {
	if len(bytes.TrimSpace(f.Text)) == 0 {
		f.report(notJSON, span{}, `{"cniVersion": "1.0.0", "name": "…", "plugins": […]}`, nil, "the file is empty")
		return
	}
	if bytes.HasPrefix(f.Text, []byte("\xef\xbb\xbf")) {
		f.report(notJSON, span{}, "nothing", []edit{{0, 3, ""}}, "the file begins with a byte order mark, which JSON does not have")
		return
	}
	if bytes.Count(f.Text, []byte("["))+bytes.Count(f.Text, []byte("{")) > mostBrackets {
		f.report(notJSON, span{}, "", nil, "the file has more than %d lists and objects: that is no network", mostBrackets)
		return
	}
	h, err := hujson.Parse(f.Text)
	if err != nil {
		f.reportSyntax(err)
		return
	}
	f.checkStandard(h)
	if f.findings != nil {
		return
	}
	if bad := (*json.SyntaxError)(nil); errors.As(json.Unmarshal(f.Text, new(any)), &bad) {
		f.report(notJSON, span{at: max(int(bad.Offset)-1, 0)}, "", nil, "%v", bad)
		return
	}
	f.top = newValue(h, "")
	if f.top.kind != '{' {
		f.report(notJSON, f.top.span, `{"cniVersion": "1.0.0", "name": "…", "plugins": […]}`, nil, "a network is an object, and this is %s", f.top.describe())
		f.top = nil
	}
}

// whereOf takes the position out of the parser's message, which has it nowhere else.
var whereOf = regexp.MustCompile(`^hujson: line (\d+), column (\d+): `)

func (f *file) reportSyntax(err error) {
	text := err.Error()
	at := len(f.Text)
	if m := whereOf.FindStringSubmatch(text); m != nil {
		line, _ := strconv.Atoi(m[1])
		column, _ := strconv.Atoi(m[2])
		text, at = text[len(m[0]):], f.offset(line, column)
	}
	fix := ""
	before := bytes.TrimRight(f.Text[:at], " \t\r\n")
	switch {
	case strings.Contains(text, "after object value") || strings.Contains(text, "after array value"):
		// The mistake is mostly at the end of the value before.
		at, fix = len(before), "a comma in front of the next one, or the bracket that closes it"
		text = "a comma or a closing bracket is missing"
	case strings.Contains(text, "EOF"):
		at, fix = len(before), "the brackets and quotes that are missing"
		text = "the file ends too early"
	case strings.Contains(text, "after top-level value"):
		text, fix = "something comes behind the end of the network", "one network in a file"
	case strings.Contains(text, "at start of object name"):
		text, fix = "a key has to be in double quotes", `"key": value`
	case strings.Contains(text, "after object name"):
		text, fix = "a colon is missing behind the key", `"key": value`
	case strings.HasPrefix(text, "invalid literal: "):
		text, fix = fmt.Sprintf("%s is no JSON value", shorten(strings.TrimPrefix(text, "invalid literal: "))), `a string in double quotes, a number, true, false or null`
	}
	f.report(notJSON, span{at: at}, fix, nil, "%s", text)
}

// offset returns where a line and a column are, both from 1 and in bytes.
func (f *file) offset(line, column int) int {
	at := 0
	for ; line > 1; line-- {
		at += bytes.IndexByte(f.Text[at:], '\n') + 1
	}
	return min(at+column-1, len(f.Text))
}

// checkStandard finds what the parser takes and JSON does not have: comments, and commas behind the last value.
func (f *file) checkStandard(h hujson.Value) {
	for v := range h.All() {
		f.checkComment(v.BeforeExtra, v.StartOffset-len(v.BeforeExtra))
		f.checkComment(v.AfterExtra, v.EndOffset)
		var last hujson.Value
		var end hujson.Extra
		switch x := v.Value.(type) {
		case *hujson.Object:
			if end = x.AfterExtra; len(x.Members) > 0 {
				last = x.Members[len(x.Members)-1].Value
			}
		case *hujson.Array:
			if end = x.AfterExtra; len(x.Elements) > 0 {
				last = x.Elements[len(x.Elements)-1]
			}
		}
		f.checkComment(end, v.EndOffset-1-len(end))
		if comma := last.EndOffset + len(last.AfterExtra); last.AfterExtra != nil && f.Text[comma] == ',' {
			f.report(notJSON, span{at: comma, end: comma + 1}, "nothing", []edit{{comma, comma + 1, ""}}, "a comma behind the last value is no JSON")
		}
	}
}

func (f *file) checkComment(extra hujson.Extra, at int) {
	if !extra.IsStandard() {
		at += bytes.IndexByte(extra, '/')
		f.report(notJSON, span{at: at}, `a key that begins with "_", such as "_comment": "…"`, nil, "JSON has no comments")
	}
}
