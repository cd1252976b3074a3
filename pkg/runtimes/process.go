package runtimes

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is one of the host's network namespace, where the daemons are that look after it.
type Process struct {
	PID  int
	Name string // of its program, cut to 15 characters
}

// Path returns a path below the process's directory in /proc.
func (p Process) Path(elements ...string) string {
	return filepath.Join(append([]string{"/proc", strconv.Itoa(p.PID)}, elements...)...)
}

// Processes lists the processes of the calling thread's network namespace.
func Processes() (list []Process, err error) {
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	for _, e := range entries {
		p := Process{}
		if p.PID, _ = strconv.Atoi(e.Name()); p.PID == 0 {
			continue
		}
		if ns, err := os.Readlink(p.Path("ns/net")); err != nil || ns != own {
			continue // or it has ended
		}
		name, _ := os.ReadFile(p.Path("comm"))
		p.Name = strings.TrimSpace(string(name))
		list = append(list, p)
	}
	return list, err
}

// configFiles returns the files and directories that a runtime's command line names in place of its usual files.
func (p Process) configFiles() []string {
	text, _ := os.ReadFile(p.Path("cmdline"))
	return configFilesIn(strings.Split(string(text), "\x00"))
}

func configFilesIn(arguments []string) (files []string) {
	for i, a := range arguments {
		flag, value, inOne := strings.Cut(a, "=")
		switch {
		case flag != "--config" && flag != "-config" && flag != "-c":
		case inOne:
			files = append(files, value)
		case i+1 < len(arguments):
			files = append(files, arguments[i+1])
		}
	}
	return files
}

// isOfK3s reports whether a configuration is the one that k3s writes for its containerd, wherever k3s keeps its data.
func isOfK3s(files []string) bool {
	return strings.HasSuffix(files[0], "/agent/etc/containerd/config.toml")
}
