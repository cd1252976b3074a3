package netlab

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/google/nftables"
)

// nftLines describes the nftables ruleset of the calling thread's namespace: a line for each table, for each chain, set,
// map, … in it, and for each rule and element in those. All lines of a table begin with "nft table FAMILY NAME".
func nftLines() ([]string, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	if len(tables) == 0 {
		return nil, nil // most namespaces: saves a process
	}
	// -s leaves out counters and the like.
	ruleset, err := output("nft", "-s", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	return parseRuleset(ruleset), nil
}

// parseRuleset turns a ruleset as nft prints it into lines that stand for themselves.
func parseRuleset(ruleset string) []string {
	var lines, blocks []string
	var elements strings.Builder
	for line := range strings.Lines(ruleset) {
		line = strings.TrimSpace(line)
		switch {
		case elements.Len() > 0 || strings.HasPrefix(line, "elements = {"):
			// A long list goes on over several lines.
			elements.WriteString(line + " ")
			if depth(elements.String()) > 0 {
				continue
			}
			for _, element := range splitElements(elements.String()) {
				lines = append(lines, nftLine(blocks, "element "+element))
			}
			elements.Reset()
		case line == "" || strings.HasPrefix(line, "#"):
		case line == "}":
			blocks = blocks[:len(blocks)-1]
		case strings.HasSuffix(line, " {"):
			blocks = append(blocks, strings.TrimSuffix(line, " {"))
			lines = append(lines, nftLine(blocks, ""))
		default:
			lines = append(lines, nftLine(blocks, line))
		}
	}
	return lines
}

func nftLine(blocks []string, text string) string {
	line := "nft " + strings.Join(blocks, " ")
	if text != "" {
		line += ": " + text
	}
	return line
}

// depth returns how many braces are open at the end of text.
func depth(text string) int {
	open := 0
	eachUnquoted(text, func(_ int, c byte) {
		switch c {
		case '{':
			open++
		case '}':
			open--
		}
	})
	return open
}

// splitElements splits "elements = { a, b : { c, d } }" into its elements.
func splitElements(text string) []string {
	text = text[strings.IndexByte(text, '{')+1 : strings.LastIndexByte(text, '}')]
	var elements []string
	start, open := 0, 0
	eachUnquoted(text, func(i int, c byte) {
		switch {
		case c == '{':
			open++
		case c == '}':
			open--
		case c == ',' && open == 0:
			elements = append(elements, normalSpace(text[start:i]))
			start = i + 1
		}
	})
	return append(elements, normalSpace(text[start:]))
}

// eachUnquoted calls f for each byte of text that is not in a "string".
func eachUnquoted(text string, f func(i int, c byte)) {
	quoted := false
	for i := range len(text) {
		if text[i] == '"' {
			quoted = !quoted
		} else if !quoted {
			f(i, text[i])
		}
	}
}

func normalSpace(text string) string { return strings.Join(strings.Fields(text), " ") }

// output runs a program from the calling thread, and so in its namespaces, and returns its standard output.
func output(program string, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := exec.Command(program, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
