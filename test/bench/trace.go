package bench

import "strings"

// tally is what processes did, by the trace of strace.
type tally struct {
	execs     int // programs executed
	processes int // processes started (threads are not)
	sends     int // calls that send to netlink sockets
	messages  int // what they sent
	calls     int // system calls
}

// count adds what a trace has, made with -f and -yy: each line begins with the number of the process, and descriptors are
// followed by what they are.
func (t *tally) count(trace string) {
	for line := range strings.Lines(trace) {
		_, line, _ = strings.Cut(line, " ")
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "execve(") || strings.HasPrefix(line, "<... execve resumed>") {
			t.countExec(line)
		}
		name, args, called := strings.Cut(line, "(")
		if !called || strings.ContainsAny(name, "<+-") {
			continue // the rest of a call that another process came between, an exit, a signal
		}
		t.calls++
		switch name {
		case "fork", "vfork", "clone", "clone3":
			if !strings.Contains(args, "CLONE_THREAD") {
				t.processes++
			}
		case "sendto", "sendmsg", "sendmmsg", "write":
			if descriptor, _, _ := strings.Cut(args, ","); strings.Contains(descriptor, "<NETLINK:") {
				t.sends++
				// Each has a header. One that is not in the trace decoded is a single one, that of an orphan.
				t.messages += max(1, strings.Count(args, "{nlmsg_len="))
			}
		}
	}
}

// countExec counts an exec that succeeded. That is seen where its line ends.
func (t *tally) countExec(line string) {
	if strings.HasSuffix(line, "= 0") {
		t.execs++
	}
}
