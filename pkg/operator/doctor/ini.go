package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// configFiles returns the files of some directories in the order of their names. Of two with one name that in the earlier directory counts:
// one that is empty, or a link to /dev/null, hides the others.
func configFiles(suffix string, dirs ...string) (paths []string) {
	seen := map[string]bool{}
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), suffix) && !seen[e.Name()] {
				seen[e.Name()] = true
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	return paths
}

// readINI returns the values of a file by section and key, none if it can't be read.
func readINI(path string) map[string]map[string][]string {
	sections := map[string]map[string][]string{}
	text, _ := os.ReadFile(path)
	name := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		key, value, isValue := strings.Cut(line, "=")
		switch {
		case line == "" || strings.ContainsAny(line[:1], "#;"):
		case strings.HasPrefix(line, "["):
			name = strings.Trim(line, "[]")
			if sections[name] == nil {
				sections[name] = map[string][]string{}
			}
		case isValue && sections[name] != nil:
			key = strings.TrimSpace(key)
			sections[name][key] = append(sections[name][key], strings.TrimSpace(value))
		}
	}
	return sections
}

func last(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

func isYes(text string) bool {
	return slices.Contains([]string{"yes", "true", "1", "on"}, strings.ToLower(text))
}
