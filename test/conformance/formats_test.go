package conformance

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// verdict is a row, and what came of it.
type verdict struct {
	group                group
	row                  row
	Plugin, Name, Remark string
	Failures             []string
	Skipped              string // why, in a line
	Took                 time.Duration
	done                 bool
}

func (v *verdict) failed() bool { return v.Skipped == "" && len(v.Failures) > 0 }

// Outcome is one word for it.
func (v *verdict) Outcome() string {
	switch {
	case v.Skipped != "":
		return "skipped"
	case v.failed():
		return "failed"
	}
	return "passed"
}

// Why is what failed, without what a terminal or a document would take for its own.
func (v *verdict) Why() string { return strings.TrimSpace(printable(strings.Join(v.Failures, "\n"))) }

// printable is a text of plugins with all in it that can be printed.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, text)
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// count is how many rows of something came to which end.
type count struct{ Passed, Failed, Skipped int }

func countOf(rows []*verdict) (c count) {
	for _, v := range rows {
		switch v.Outcome() {
		case "passed":
			c.Passed++
		case "failed":
			c.Failed++
		default:
			c.Skipped++
		}
	}
	return c
}

// report is what is written of a run. The rows' own order is that of the output, too.
type report struct {
	out                  io.Writer
	html                 *os.File // nil for no page
	format               *format
	Rows                 []*verdict
	Missing              []string // programs
	Version, Dir, Kernel string
	Start                time.Time

	mu      sync.Mutex
	written int // how many rows are
}

// format is how a report is written: what begins it, each row after the one before it, and the end. Each may be left out.
type format struct {
	begin, end func(out io.Writer, r *report)
	row        func(out io.Writer, number int, v *verdict)
}

var formats = map[string]*format{
	"text":  {row: textRow, end: textEnd},
	"tap":   {begin: tapBegin, row: tapRow},
	"junit": {end: junit},
}

func (r *report) begin() {
	r.Start = time.Now()
	if r.format.begin != nil {
		r.format.begin(r.out, r)
	}
}

// done writes a row that is done, or later if one before it is not.
func (r *report) done(v *verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for v.done = true; r.written < len(r.Rows) && r.Rows[r.written].done; r.written++ {
		if r.format.row != nil {
			r.format.row(r.out, r.written+1, r.Rows[r.written])
		}
		if n := r.written + 1; n%200 == 0 { // a run of all takes its time
			fmt.Fprintf(os.Stderr, "cni-conformance: %d of %d rows are done\n", n, len(r.Rows))
		}
	}
}

func (r *report) end() error {
	if r.format.end != nil {
		r.format.end(r.out, r)
	}
	if r.html == nil {
		return nil
	}
	return cmp.Or(htmlPage(r.html, r), r.html.Close())
}

// Took is how long the run took.
func (r *report) Took() time.Duration { return time.Since(r.Start).Round(time.Second) }

// Group is the rows of a plugin.
type Group struct {
	Name string
	Rows []*verdict
	count
}

// Groups are the rows by plugin.
func (r *report) Groups() (list []Group) {
	for _, v := range r.Rows {
		if len(list) == 0 || list[len(list)-1].Name != v.Plugin {
			list = append(list, Group{Name: v.Plugin})
		}
		last := &list[len(list)-1]
		last.Rows = append(last.Rows, v)
	}
	for i := range list {
		list[i].count = countOf(list[i].Rows)
	}
	return list
}

// All counts all rows.
func (r *report) All() count { return countOf(r.Rows) }

func textRow(out io.Writer, _ int, v *verdict) {
	if !v.failed() {
		return
	}
	fmt.Fprintf(out, "FAIL %s: %s\n", v.Plugin, v.Name)
	lines(out, "    ", v.Why())
	if v.Remark != "" {
		fmt.Fprintf(out, "    (%s)\n", v.Remark)
	}
}

func textEnd(out io.Writer, r *report) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\npassed\tfailed\tskipped\t\n")
	for _, g := range r.Groups() {
		fmt.Fprintf(table, "%d\t%d\t%d\t  %s\n", g.Passed, g.Failed, g.Skipped, g.Name)
	}
	all := r.All()
	fmt.Fprintf(table, "%d\t%d\t%d\t  all %d rows, in %v\n", all.Passed, all.Failed, all.Skipped, len(r.Rows), r.Took())
	table.Flush()
	skipped := map[string]int{}
	for _, v := range r.Rows {
		if v.Skipped != "" {
			skipped[v.Skipped]++
		}
	}
	for _, why := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Fprintf(out, "skipped %d: %s\n", skipped[why], why)
	}
}

// tapBegin says version 13, as readers of that fail on 14: what follows is the same in both.
func tapBegin(out io.Writer, r *report) {
	fmt.Fprintf(out, "TAP version 13\n1..%d\n# cni-conformance v%s, plugins of %s, kernel %s\n", len(r.Rows), r.Version, r.Dir, r.Kernel)
}

// tapEscape has a description mean no directive.
var tapEscape = strings.NewReplacer(`\`, `\\`, `#`, `\#`)

// compact is a text without empty lines and blanks at the ends of lines, which makes it a block of YAML in the form that all readers of TAP know.
func compact(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \t\n"); line != "" {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

func tapRow(out io.Writer, number int, v *verdict) {
	line := fmt.Sprintf("ok %d - %s", number, tapEscape.Replace(v.Plugin+": "+v.Name))
	switch v.Outcome() {
	case "passed":
		fmt.Fprintln(out, line)
	case "skipped":
		fmt.Fprintf(out, "%s # SKIP %s\n", line, tapEscape.Replace(v.Skipped))
	default:
		fmt.Fprintf(out, "not %s\n  ---\n", line)
		var block bytes.Buffer
		encoder := yaml.NewEncoder(&block)
		encoder.SetIndent(2)
		_ = encoder.Encode(struct { // strings and a number always can be
			Message string
			Remark  string `yaml:",omitempty"`
			Seconds float64
		}{compact(v.Why()), v.Remark, seconds(v.Took)})
		lines(out, "  ", block.String())
		fmt.Fprintln(out, "  ...")
	}
}

// What readers of JUnit's XML know: a suite for each plugin, a case for each row.
type (
	junitSuites struct {
		XMLName xml.Name `xml:"testsuites"`
		Name    string   `xml:"name,attr"`
		junitCount
		Suites []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name string `xml:"name,attr"`
		junitCount
		Cases []junitCase `xml:"testcase"`
	}
	junitCount struct {
		Tests    int     `xml:"tests,attr"`
		Failures int     `xml:"failures,attr"`
		Errors   int     `xml:"errors,attr"`
		Skipped  int     `xml:"skipped,attr"`
		Seconds  float64 `xml:"time,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Seconds float64       `xml:"time,attr"`
		Failure *junitMessage `xml:"failure"`
		Skipped *junitMessage `xml:"skipped"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

func junit(out io.Writer, r *report) {
	c := r.All()
	all := junitSuites{Name: "cni-conformance v" + r.Version, junitCount: junitCount{len(r.Rows), c.Failed, 0, c.Skipped, seconds(r.Took())}}
	for _, g := range r.Groups() {
		var took time.Duration
		s := junitSuite{Name: g.Name}
		for _, v := range g.Rows {
			c := junitCase{Class: v.Plugin, Name: v.Name, Seconds: seconds(v.Took)}
			switch v.Outcome() {
			case "failed":
				first, _, _ := strings.Cut(v.Why(), "\n")
				c.Failure = &junitMessage{first, strings.TrimSuffix(v.Why()+"\n"+v.Remark, "\n")}
			case "skipped":
				c.Skipped = &junitMessage{Message: v.Skipped}
			}
			s.Cases = append(s.Cases, c)
			took += v.Took
		}
		s.junitCount = junitCount{len(g.Rows), g.Failed, 0, g.Skipped, seconds(took)}
		all.Suites = append(all.Suites, s)
	}
	fmt.Fprint(out, xml.Header)
	encoder := xml.NewEncoder(out)
	encoder.Indent("", " ")
	_ = encoder.Encode(all) // strings and numbers always can be
	fmt.Fprintln(out)
}

// TestFormats makes sure that what plugins print neither ends a document nor begins anything in one.
func TestFormats(t *testing.T) {
	hostile := "\x1b[31m]]></failure>\x00\xff\n\n... \t\nnot ok 7 - me\n  ---\n<script>alert(1)</script> # SKIP"
	rows := func() []*verdict {
		return []*verdict{
			{Plugin: "bridge", Name: `a # SKIP with \ and <b>`, Failures: []string{hostile}, Remark: "our choice: 'so'"},
			{Plugin: "bridge", Name: "holds"},
			{Plugin: "tap", Name: "other", Failures: []string{"whatever"}, Skipped: "there is no # plugin tap"},
		}
	}
	printed := map[string]string{}
	for name, f := range formats {
		var out strings.Builder
		r := &report{out: &out, format: f, Rows: rows(), Version: "1", Dir: "<dir>"}
		r.begin()
		for _, i := range []int{2, 0, 1} { // the rows' order stays
			r.done(r.Rows[i])
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		printed[name] = out.String()
		var page strings.Builder
		if err := htmlPage(&page, r); err != nil {
			t.Fatal(err)
		}
		printed["html"] = page.String()
		if all := out.String() + page.String(); strings.ContainsAny(all, "\x1b\x00") || !utf8.ValidString(all) {
			t.Errorf("%s: a terminal would be told something by\n%q", name, out.String())
		}
	}
	for name, want := range map[string][]string{
		"text": {"FAIL bridge: a # SKIP with \\ and <b>\n    �[31m", "    not ok 7", "    (our choice: 'so')\n", "       1       1        1  all 3 rows, in 0s\nskipped 1: there is no # plugin tap\n"},
		"tap": {"TAP version 13\n1..3\n", "\nnot ok 1 - bridge: a \\# SKIP with \\\\ and <b>\n  ---\n  message: |\n    �[31m", "\n    ...\n    not ok 7 - me\n", "\n  ...\nok 2 - bridge: holds\n",
			"\nok 3 - tap: other # SKIP there is no \\# plugin tap\n"},
		"html": {`<td>1</td><td>1</td><td>0</td>`, "a # SKIP with \\ and &lt;b&gt;<pre>", "&lt;script&gt;alert(1)", "CNI conformance of &lt;dir&gt;"},
	} {
		for _, part := range want {
			if !strings.Contains(printed[name], part) {
				t.Errorf("%s lacks %q:\n%s", name, part, printed[name])
			}
		}
	}
	var all junitSuites
	if err := xml.Unmarshal([]byte(printed["junit"]), &all); err != nil {
		t.Fatalf("%v\n%s", err, printed["junit"])
	}
	if c := all.junitCount; c.Tests != 3 || c.Failures != 1 || c.Skipped != 1 || len(all.Suites) != 2 {
		t.Errorf("junit counts %+v, and has %d suites", c, len(all.Suites))
	}
	if first := all.Suites[0].Cases[0]; first.Failure == nil || !strings.Contains(first.Failure.Text, "]]></failure>") || first.Failure.Message != "�[31m]]></failure>��" {
		t.Errorf("junit has %+v", first.Failure)
	}
}
