package doctor

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// runs reports whether a process of one of these names is there.
func (s *subject) runs(names ...string) bool {
	return slices.ContainsFunc(s.processes, func(p node.Process) bool { return slices.Contains(names, p.Name) })
}

// watched returns the inodes of the files and directories of whose changes the process is told (inotify(7)). asked reports whether it has
// asked to be told of any.
func watched(p node.Process) (inodes []uint64, asked bool, err error) {
	entries, err := os.ReadDir(p.Path("fd"))
	for _, e := range entries {
		target, err := os.Readlink(p.Path("fd", e.Name()))
		if err != nil || target != "anon_inode:inotify" {
			continue // or it was closed
		}
		asked = true
		text, _ := os.ReadFile(p.Path("fdinfo", e.Name()))
		for line := range strings.Lines(string(text)) {
			var number, inode uint64
			if _, err := fmt.Sscanf(line, "inotify wd:%x ino:%x", &number, &inode); err == nil {
				inodes = append(inodes, inode)
			}
		}
	}
	return inodes, asked, err
}
