package netlab

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/google/nftables"
)

// iptablesLines describes the iptables rules of the calling thread's namespace, of the legacy and of the nft variant, as
// far as either has been used in it.
func iptablesLines() ([]string, error) {
	var lines []string
	for _, family := range []string{"ip", "ip6"} {
		for _, variant := range []struct {
			name string
			used func(family string) (bool, error)
		}{
			{"legacy", usesLegacyTables},
			{"nft", usesNFTTables},
		} {
			used, err := variant.used(family)
			if err != nil {
				return nil, err
			}
			if !used {
				continue
			}
			program := family + "tables-" + variant.name + "-save"
			saved, err := output(program)
			if err != nil {
				return nil, err
			}
			lines = append(lines, parseSaved("iptables "+family+" "+variant.name, saved)...)
		}
	}
	return lines, nil
}

// usesLegacyTables reports whether a table of iptables-legacy exists. The programs themselves would create them.
func usesLegacyTables(family string) (bool, error) {
	names, err := os.ReadFile("/proc/thread-self/net/" + family + "_tables_names")
	if os.IsNotExist(err) {
		return false, nil // the kernel module is not loaded
	}
	return len(names) > 0, err
}

// usesNFTTables reports whether a table exists that iptables-nft may have made.
func usesNFTTables(family string) (bool, error) {
	conn, err := nftables.New()
	if err != nil {
		return false, err
	}
	want := nftables.TableFamilyIPv4
	if family == "ip6" {
		want = nftables.TableFamilyIPv6
	}
	tables, err := conn.ListTablesOfFamily(want)
	if err != nil {
		return false, fmt.Errorf("list nftables tables: %w", err)
	}
	for _, table := range tables {
		switch table.Name {
		case "raw", "mangle", "nat", "filter", "security":
			return true, nil
		}
	}
	return false, nil
}

// parseSaved turns what iptables-save prints into lines that stand for themselves, without counters, comments and
// built-in chains in their initial state.
func parseSaved(prefix, saved string) []string {
	counters := regexp.MustCompile(`\[\d+:\d+\]`)
	var lines []string
	table := ""
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line == "COMMIT" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"):
			chain, policy, _ := strings.Cut(line[1:], " ")
			if policy = strings.TrimSpace(counters.ReplaceAllString(policy, "")); policy != "ACCEPT" {
				lines = append(lines, facts(prefix, table+":", "chain", chain, policy))
			}
		default:
			lines = append(lines, facts(prefix, table+":", line))
		}
	}
	return lines
}
