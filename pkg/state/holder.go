package state

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Holder returns which process holds the lock on the file at path, such as
// "process 4711 (host-local)", "" when the kernel does not tell: /proc/locks
// lists only processes of our pid namespace, and some filesystems under another
// device number than stat(2) returns.
func Holder(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return ""
	}
	table, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	pid := holder(string(table), fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)), st.Ino))
	if pid == "" {
		return ""
	}
	name, err := os.ReadFile("/proc/" + pid + "/comm")
	if err != nil {
		return "process " + pid
	}
	return fmt.Sprintf("process %s (%s)", pid, strings.TrimSpace(string(name)))
}

// holder finds the process in the text of /proc/locks, whose lines are
//
//	1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF
//	1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:1234 0 EOF
//
// with an arrow for one who waits.
func holder(table, file string) (pid string) {
	for _, line := range strings.Split(table, "\n") {
		f := strings.Fields(line)
		if len(f) >= 6 && f[1] == "FLOCK" && f[5] == file && f[4] != "0" && f[4] != "-1" {
			return f[4]
		}
	}
	return ""
}
