package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// process is one of the host's network namespace, where the daemons are that look after it.
type process struct {
	pid  int
	name string // of its program, cut to 15 characters
}

func (p process) path(elements ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(p.pid)}, elements...)...)
}

func listProcesses() (list []process, err error) {
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	for _, e := range entries {
		p := process{}
		if p.pid, _ = strconv.Atoi(e.Name()); p.pid == 0 {
			continue
		}
		if ns, err := os.Readlink(p.path("ns/net")); err != nil || ns != own {
			continue // or it has ended
		}
		name, _ := os.ReadFile(p.path("comm"))
		p.name = strings.TrimSpace(string(name))
		list = append(list, p)
	}
	return list, err
}

// runs reports whether a process of one of these names is there.
func (s *subject) runs(names ...string) bool {
	return slices.ContainsFunc(s.processes, func(p process) bool { return slices.Contains(names, p.name) })
}

// configFile returns the file that a runtime's command line names in place of its usual ones, "" if it names none.
func (p process) configFile() string {
	text, _ := os.ReadFile(p.path("cmdline"))
	return configIn(strings.Split(string(text), "\x00"))
}

func configIn(arguments []string) string {
	for i, a := range arguments {
		flag, value, inOne := strings.Cut(a, "=")
		switch {
		case flag != "--config" && flag != "-config" && flag != "-c":
		case inOne:
			return value
		case i+1 < len(arguments):
			return arguments[i+1]
		}
	}
	return ""
}

// watched returns the inodes of the files and directories of whose changes the process is told (inotify(7)). asked reports whether it has
// asked to be told of any.
func (p process) watched() (inodes []uint64, asked bool, err error) {
	entries, err := os.ReadDir(p.path("fd"))
	for _, e := range entries {
		target, err := os.Readlink(p.path("fd", e.Name()))
		if err != nil || target != "anon_inode:inotify" {
			continue // or it was closed
		}
		asked = true
		text, _ := os.ReadFile(p.path("fdinfo", e.Name()))
		for line := range strings.Lines(string(text)) {
			var number, inode uint64
			if _, err := fmt.Sscanf(line, "inotify wd:%x ino:%x", &number, &inode); err == nil {
				inodes = append(inodes, inode)
			}
		}
	}
	return inodes, asked, err
}
