package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/pluginfile"
)

// checkPluginDirs looks at each directory of plugins as a whole.
func checkPluginDirs(_ context.Context, s *subject) (list []Finding, err error) {
	places, err := s.places()
	var seen []string
	for _, p := range places {
		for _, dir := range p.dirs {
			if slices.Contains(seen, dir) {
				continue
			}
			seen = append(seen, dir)
			list = append(list, slices.Concat(halfUpdated(dir, pluginfile.Main), halfUpdated(dir, pluginfile.MainEtcd))...)
		}
	}
	return list, err
}

var pluginHalfUpdated = codes.Declare(finding.Code{Name: "plugin-half-updated", Severity: finding.Warning,
	Meaning: "An update did not reach all files: plugins of different versions work together.",
	Remedy:  "`cnictl install --dir DIR`"})

// halfUpdated looks for different versions of a program of cnibox in a directory.
func halfUpdated(dir, program string) []Finding {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	sums := map[string]string{}
	names := map[string][]string{}
	for _, e := range entries {
		f := pluginfile.Identify(filepath.Join(dir, e.Name()))
		if f == nil || f.Build != program {
			continue
		}
		if sums[f.ID()] == "" {
			sums[f.ID()] = f.Sum()
		}
		names[sums[f.ID()]] = append(names[sums[f.ID()]], e.Name())
	}
	if len(names) < 2 {
		return nil
	}
	var versions []string
	for _, list := range names {
		versions = append(versions, some(list))
	}
	slices.Sort(versions)
	return []Finding{found(pluginHalfUpdated, "", finding.Run("cnictl", "install", "--dir", dir), "%s has %d versions of cnibox: %s",
		dir, len(names), strings.Join(versions, " | "))}
}
