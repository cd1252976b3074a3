package detach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/state"
)

// mayLeave reports whether a second process may be left behind, and why, for people. When the first one has ended it is an orphan,
// and whoever adopts it has to wait for its end: otherwise it stays in the process table for ever, a zombie. Nothing tells whether
// that is done but what became of the last one. Where it is not, that costs a zombie, and from then on every DEL waits.
func mayLeave() (bool, string) {
	path := record()
	text, err := state.Read(path)
	switch {
	case path == "":
		return false, "nothing can be noted of it"
	case errors.Is(err, fs.ErrNotExist):
		return true, "none was left behind before"
	case err != nil:
		return false, err.Error()
	}
	pid, start, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if isZombie, started := look(pid); isZombie && started == start {
		return false, "the last one, process " + pid + ", is a zombie: nobody waits for orphans here"
	}
	return true, "the last one, process " + pid + ", is no zombie"
}

// noteOrphan notes a second process that may be left behind.
func noteOrphan(pid int) error {
	path := record()
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	number := strconv.Itoa(pid)
	_, start := look(number)
	return state.Write(path, []byte(number+" "+start), 0o600)
}

// record is the file about which second process of our pid namespace was left behind last, "" if there can be none.
func record() string {
	var namespace unix.Stat_t
	_ = unix.Stat("/proc/self/ns/pid", &namespace) // without /proc there is no zombie to be seen either
	return state.RunFile(fmt.Sprint("orphans/", namespace.Ino))
}

// look reads whether a process is a zombie, and when it was started, which tells it from others that will have its number
// (proc_pid_stat(5), fields 3 and 22).
func look(pid string) (isZombie bool, start string) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // behind the name, which may hold anything
	if err != nil || len(fields) < 20 {
		return false, ""
	}
	return fields[0] == "Z", fields[19]
}
