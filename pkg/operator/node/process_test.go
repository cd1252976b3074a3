package node

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"
)

// TestProcesses: a process is the node's if it is root's, and sees the node's files.
func TestProcesses(t *testing.T) {
	for name, c := range map[string]struct {
		attr syscall.SysProcAttr
		want bool
	}{
		"root's":                     {want: true},
		"nobody's":                   {attr: syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}},
		"root's in a container":      {attr: syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}},
		"root's in a user namespace": {attr: syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}}},
	} {
		cmd := exec.Command("cat")
		cmd.SysProcAttr = &c.attr
		stdin, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		list, err := new(Host).Processes()
		i := slices.IndexFunc(list, func(p Process) bool { return p.PID == cmd.Process.Pid })
		if i < 0 || list[i].OfNode != c.want {
			t.Errorf("%s: %v, want %v (error %v)", name, list, c.want, err)
		}
		_ = stdin.Close()
		_ = cmd.Wait()
	}
}
