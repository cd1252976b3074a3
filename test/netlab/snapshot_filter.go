package netlab

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/google/nftables"
)

// filterLines describes the packet filter of the calling thread's namespace. All lines of a table of nftables begin with
// "nft table FAMILY NAME", those of a table of iptables with "iptables FAMILY VARIANT NAME:".
func filterLines() ([]string, error) {
	lines, families, err := nftLines()
	if err != nil {
		return nil, err
	}
	for _, family := range []string{"ip", "ip6"} {
		// The programs would make tables themselves, so they are asked only where there are some.
		legacy, err := proc.ReadFile("thread-self/net/" + family + "_tables_names")
		if err != nil && !os.IsNotExist(err) { // it exists once the kernel's module is loaded
			return nil, err
		}
		for variant, used := range map[string]bool{"legacy": len(legacy) > 0, "nft": families[family]} {
			if !used {
				continue
			}
			saved, err := output(family + "tables-" + variant + "-save")
			if err != nil {
				return nil, err
			}
			lines = append(lines, savedLines("iptables "+family+" "+variant, saved)...)
		}
	}
	return lines, nil
}

// nftLines describes what nftables has. Where there is no table nft is not asked: what takes time are processes.
func nftLines() (lines []string, iptables map[string]bool, err error) {
	if tables, err := new(nftables.Conn).ListTables(); err != nil || len(tables) == 0 {
		return nil, nil, err
	}
	text, err := output("nft", "-s", "-j", "list", "ruleset")
	if err != nil {
		return nil, nil, err
	}
	if lines, iptables, err = rulesetLines(text); err != nil {
		return nil, nil, fmt.Errorf("decode what nft lists: %w", err)
	}
	return lines, iptables, nil
}

// rulesetLines returns lines for each table, for each chain, set, map, … in it, and for each rule and element in those,
// and the families that have tables which iptables-nft may have made.
func rulesetLines(text string) (lines []string, iptables map[string]bool, err error) {
	var ruleset struct {
		Nftables []map[string]object
	}
	if err := decodeOne(text, &ruleset); err != nil {
		return nil, nil, err
	}
	iptables = map[string]bool{}
	for _, entry := range ruleset.Nftables {
		for kind, o := range entry {
			prefix := fmt.Sprintf("nft table %s %v", o["family"], o["table"])
			switch kind {
			case "metainfo":
				continue
			case "table":
				switch o["name"] {
				case "raw", "mangle", "nat", "filter", "security":
					iptables[o["family"].(string)] = true
				}
				prefix = fmt.Sprintf("nft table %s %v", o["family"], o["name"])
			case "rule":
				prefix += fmt.Sprintf(" chain %s:", o["chain"])
			default:
				prefix += fmt.Sprintf(" %s %s", kind, o["name"])
			}
			lines = append(lines, describe(prefix, o, "family", "table", "chain", "name", "handle", "elem", "packets", "bytes", "used"))
			elements, _ := o["elem"].([]any)
			for _, e := range elements {
				element, err := json.Marshal(e)
				if err != nil {
					return nil, nil, err
				}
				lines = append(lines, prefix+": element "+string(element))
			}
		}
	}
	return lines, iptables, nil
}

// savedLines turns what iptables-save prints into lines that stand for themselves, without counters, comments and
// built-in chains in their initial state.
func savedLines(prefix, saved string) (lines []string) {
	table := ""
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line == "COMMIT" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "*"):
			table = prefix + " " + line[1:] + ": "
		case strings.HasPrefix(line, ":"):
			// :CHAIN POLICY [PACKETS:BYTES]
			if words := strings.Fields(line[1:]); words[1] != "ACCEPT" {
				lines = append(lines, table+"chain "+words[0]+" "+words[1])
			}
		default:
			lines = append(lines, table+line)
		}
	}
	return lines
}
