package tuning

import (
	"errors"
	"os"
	"regexp"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// allowlistFile names the sysctls that may be set, where the administrator of
// a node does not write its configurations. Without the file all may be.
const allowlistFile = "/etc/cni/tuning/allowlist.conf"

// checkAllowlist returns an error unless each sysctl, as it is written in the
// configuration, matches the pattern on a line of the allowlist.
func checkAllowlist(sysctls []setting) error {
	if len(sysctls) == 0 {
		return nil
	}
	text, err := os.ReadFile(allowlistFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &types.Error{Code: types.ErrIOFailure, Msg: err.Error(), Details: "make the file readable, or remove it to allow all sysctls"}
	}
	lines, patterns, err := parseAllowlist(string(text))
	if err != nil {
		return plugin.ConfigError("write one regular expression of Go's syntax on each line",
			"%s: %v", allowlistFile, err)
	}
	for _, s := range sysctls {
		if !matchesAny(patterns, s.key.String()) {
			return plugin.ConfigError("remove it from the configuration, or add a line that matches it to "+allowlistFile,
				"Sysctl %s is not allowed. Only the following sysctls are allowed: [%s]", s.key, strings.Join(lines, " "))
		}
	}
	return nil
}

// parseAllowlist returns the lines that hold something, and their patterns.
func parseAllowlist(text string) (lines []string, patterns []*regexp.Regexp, err error) {
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		p, err := regexp.Compile(line)
		if err != nil {
			return nil, nil, err
		}
		lines = append(lines, line)
		patterns = append(patterns, p)
	}
	return lines, patterns, nil
}

func matchesAny(patterns []*regexp.Regexp, text string) bool {
	for _, p := range patterns {
		if p.MatchString(text) {
			return true
		}
	}
	return false
}
