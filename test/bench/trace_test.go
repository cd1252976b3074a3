package bench

import "testing"

func TestTally(t *testing.T) {
	const trace = `100 execve("/opt/cni/bin/bridge", ["/opt/cni/bin/bridge"], 0x7ffe /* 9 vars */) = 0
100 execve("/usr/bin/iptables", ["iptables"], 0x7ffe /* 9 vars */) = -1 ENOENT (No such file or directory)
100 clone(child_stack=0xc00, flags=CLONE_VM|CLONE_FS|CLONE_THREAD|CLONE_SETTLS) = 101
100 clone(child_stack=NULL, flags=CLONE_VM|CLONE_VFORK|SIGCHLD <unfinished ...>
102 execve("/usr/sbin/iptables", ["iptables"], 0x7ffe /* 9 vars */ <unfinished ...>
101 futex(0x5, FUTEX_WAIT_PRIVATE, 0, NULL <unfinished ...>
102 <... execve resumed>)                   = 0
100 <... clone resumed>)                    = 102
102 vfork( <unfinished ...>
103 clone3({flags=CLONE_VM|CLONE_VFORK, exit_signal=SIGCHLD}, 88) = 104
102 sendto(3<NETLINK:[NETFILTER:102]>, [[{nlmsg_len=20, nlmsg_type=0x10}, "\x00"], [{nlmsg_len=152, nlmsg_type=NFNL}]], 172, 0, NULL, 0) = 172
102 sendmsg(4<NETLINK:[4711]>, {msg_name={sa_family=AF_NETLINK}}, 0 <unfinished ...>
102 sendto(5<UNIX-STREAM:[1->2]>, "a NETLINK:", 3, 0, NULL, 0) = 3
102 write(3<NETLINK:[102]>, "\x20\x00", 32) = 32
102 write(1</dev/null<char 1:3>>, "sendto(3<NETLINK:", 5) = 5
102 +++ exited with 0 +++
100 --- SIGCHLD {si_signo=SIGCHLD} ---
`
	var got tally
	got.count(trace)
	if want := (tally{execs: 2, processes: 3, sends: 3, messages: 4, calls: 13}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
