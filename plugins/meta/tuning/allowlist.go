package tuning

import (
	"errors"
	"os"
	"regexp"
	"slices"
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
		return types.NewError(types.ErrIOFailure, err.Error(), "make the file readable, or remove it to allow all sysctls")
	}
	var patterns []*regexp.Regexp
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		p, err := regexp.Compile(line)
		if err != nil {
			return plugin.ConfigError("write one regular expression of Go's syntax on each line", "%s: %v", allowlistFile, err)
		}
		patterns = append(patterns, p)
	}
	for _, s := range sysctls {
		if !slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(s.key.String()) }) {
			return plugin.ConfigError("remove it from the configuration, or add a line that matches it to "+allowlistFile,
				"Sysctl %s is not allowed. Only the following sysctls are allowed: %v", s.key, patterns)
		}
	}
	return nil
}
