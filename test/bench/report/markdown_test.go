package report

import (
	"strings"
	"testing"
)

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0.00", 0.004: "0.00", 1.234: "1.23", 9.994: "9.99", 9.996: "10.0", 12.34: "12.3", 99.94: "99.9", 99.96: "100", 1234.5: "1234",
	} {
		if got := number(x); got != want {
			t.Errorf("number(%v) = %q, want %q", x, got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for text, want := range map[string]string{"0": "0", "999": "999", "1000": "1,000", "50000": "50,000", "1000000": "1,000,000", "IPv4 and IPv6": "IPv4 and IPv6", "": ""} {
		if got := grouped(text); got != want {
			t.Errorf("grouped(%q) = %q, want %q", text, got, want)
		}
	}
}

func sample() *Results {
	r := &Results{Facts: []Fact{{"kernel", "6.18"}}}
	for _, s := range []struct {
		plugins string
		ms      float64
	}{{Reference, 60}, {Cnibox, 6}} {
		r.Add(Point{"node", "0", s.plugins, "ADD"}, "ms", s.ms)
		r.Add(Point{"attachments", "0", s.plugins, "ADD"}, "ms", s.ms)
		r.Add(Point{"attachments", "1000", s.plugins, "ADD"}, "ms", s.ms*6)
	}
	return r
}

func TestMarkdown(t *testing.T) {
	text := sample().markdown("### More\n\nNone.\n")
	for _, want := range []string{
		"| three plugins: bridge with host-local, tuning, portmap | 60.0 → 6.00 (10.0x) | – |\n",
		"\n\n### An empty node\n",
		"\n\n### More\n\nNone.\n\n## How it was measured\n",
		"| reference | 60.0 / 60.0 | 1.00x | – | – |",
		"| cnibox | 6.00 / 6.00 | 10.0x | – |",
		"| 1,000 | cnibox | 36.0 / 36.0 | 10.0x |",
		"![ADD against attachments on the node](attachments-add.svg)",
		"- kernel: 6.18\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if strings.Contains(text, "### Disk") {
		t.Error("the report has a section that was not measured")
	}
	if t.Failed() {
		t.Log(text)
	}
}

// A table is one only if each of its lines has as many cells.
func TestTables(t *testing.T) {
	cells := 0
	for line := range strings.Lines(sample().markdown("")) {
		if !strings.HasPrefix(line, "|") {
			cells = 0
			continue
		}
		n := strings.Count(line, "|")
		if cells != 0 && n != cells {
			t.Errorf("a line has %d bars, the one before it %d: %s", n, cells, line)
		}
		cells = n
	}
}

func TestSection(t *testing.T) {
	r := sample()
	if text := r.Section("node"); !strings.HasPrefix(text, "### An empty node\n") {
		t.Errorf("got %q", text)
	}
	if text := r.Section("leases"); text != "" {
		t.Errorf("got %q of what was not measured", text)
	}
}
