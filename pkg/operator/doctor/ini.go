package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
)

// configFiles returns the files of some directories in the order of their names. Of two with one name that in the earlier directory counts:
// one that is empty hides the others, as a link to /dev/null does.
func configFiles(suffix string, dirs ...string) (paths []string) {
	seen := map[string]bool{}
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), suffix) && !seen[e.Name()] {
				seen[e.Name()] = true
				path := filepath.Join(dir, e.Name())
				if target, _ := os.Readlink(path); target != os.DevNull {
					paths = append(paths, path)
				}
			}
		}
	}
	slices.SortFunc(paths, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	return paths
}

// readINI returns the values of a file of systemd's or NetworkManager's by section and key, as far as it can be read.
func readINI(path string) map[string]map[string][]string {
	sections := map[string]map[string][]string{}
	text, _ := os.ReadFile(path)
	options, _ := unit.DeserializeOptions(bytes.NewReader(text))
	for _, o := range options {
		if sections[o.Section] == nil {
			sections[o.Section] = map[string][]string{}
		}
		sections[o.Section][o.Name] = append(sections[o.Section][o.Name], strings.ReplaceAll(o.Value, "\\\n", " "))
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
