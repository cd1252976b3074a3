package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/plugins"
	"github.com/cnibox/cnibox/test/netlab"
)

const statusIPAM = `{"type": "host-local", "subnet": "10.88.0.0/24"}`

// statusConfigs are configurations of each plugin that have STATUS look at all that it looks at.
var statusConfigs = map[string][]string{
	"bridge":      {`"ipMasq": true, "macspoofchk": true, "ipam": ` + statusIPAM, `"ipMasq": true, "ipMasqBackend": "iptables", "ipam": ` + statusIPAM},
	"ptp":         {`"ipMasq": true, "ipam": ` + statusIPAM},
	"macvlan":     {`"master": "up0", "ipam": ` + statusIPAM},
	"ipvlan":      {`"master": "up0", "ipam": ` + statusIPAM},
	"vlan":        {`"master": "up0", "vlanId": 5, "ipam": ` + statusIPAM},
	"dummy":       {`"ipam": ` + statusIPAM},
	"tap":         {`"ipam": ` + statusIPAM},
	"host-device": {`"device": "up0", "ipam": ` + statusIPAM},
	"loopback":    {""},
	"flannel":     {`"delegate": {"ipMasq": true}`},
	"contivk8s":   {`"timeout": 5`},
	"host-local":  {`"ipam": ` + statusIPAM},
	"static":      {`"ipam": {"type": "static", "addresses": [{"address": "10.88.0.2/24"}]}`},
	"dhcp":        {`"ipam": {"type": "dhcp"}`},
	"tuning":      {`"mtu": 1400, "sysctl": {"net.ipv4.conf.IFNAME.log_martians": "1"}`},
	"portmap":     {"", `"backend": "iptables"`, `"conditionsV4": ["ip saddr 10.0.0.0/8"]`},
	"firewall":    {`"ingressPolicy": "isolated"`, `"backend": "iptables", "ingressPolicy": "isolated"`},
	"bandwidth":   {`"ingressRate": 1000000, "ingressBurst": 1000000, "egressRate": 1000000, "egressBurst": 1000000`},
	"sbr":         {""},
	"vrf":         {`"vrfname": "blue"`},
	"egress":      {`"allow": ["10.20.0.0/16", "[2001:db8::53]:53/udp"], "deny": ["169.254.169.254"]`, `"internal": true`},
	"dnsname":     {`"domainName": "dns.podman"`},
	"chain":       {`"plugins": [{"type": "bridge", "ipMasq": true, "ipam": ` + statusIPAM + `}, {"type": "portmap"}, {"type": "firewall"}]`},
}

// TestStatus has STATUS change nothing, and start no program but iptables for its version: runtimes ask every few seconds.
func TestStatus(t *testing.T) {
	t.Parallel()
	fresh, _ := node(t)
	used, _ := node(t)
	pod := used.NewPod(t, "web")
	caps := map[string]any{"portMappings": []map[string]any{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}}
	if _, err := used.AddList(guarded("net0", 90, `, "ingressPolicy": "isolated"`), pod.RuntimeConf(caps)); err != nil {
		t.Fatal(err)
	}
	for name, host := range map[string]*netlab.Host{"nothing of ours is there": fresh, "a container is there": used} {
		host.MustRun(t, "ip", "link", "add", "up0", "up", "type", "veth", "peer", "name", "up1")
		host.MustRun(t, "mkdir", "-p", "/etc/cni/tuning")
		t.Run(name, func(t *testing.T) {
			for _, p := range plugins.All {
				if len(statusConfigs[p.Name]) == 0 {
					t.Errorf("there is no configuration for %s", p.Name)
				}
				for _, keys := range statusConfigs[p.Name] {
					t.Run(p.Name+" "+keys, func(t *testing.T) { statusOf(t, host, p.Name, keys) })
				}
			}
		})
	}
}

// lacked matches errors of STATUS about what a node may lack.
var lacked = regexp.MustCompile(`kernel has no|dhcp daemon|contiv's daemon|answers when containers ask`)

func statusOf(t *testing.T, host *netlab.Host, name, keys string) {
	if keys != "" {
		keys = ", " + keys
	}
	config := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "net-net0", "type": %q%s}`, name, keys)
	file := filepath.Join(t.TempDir(), "calls")
	netlab.Until(t, "STATUS has the time that it wants", func() bool {
		cmd := host.PluginCommand(t, name, netlab.PluginCall{Command: "STATUS", Path: netlab.PluginDir, Config: config})
		traced := exec.Command("strace", "-f", "--seccomp-bpf", "-qq", "-yy", "-s", "256", "-e", "signal=none", "-e", "trace="+tracedCalls, "-o", file, cmd.Path)
		traced.Env, traced.Stdin = cmd.Env, cmd.Stdin
		out, err := host.Output(traced)
		isLate := strings.Contains(out, "out of time")
		if err != nil && !isLate && !lacked.MatchString(out) {
			t.Errorf("%v: %s", err, out)
		}
		return !isLate
	})
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "execve(") {
		t.Fatalf("trace %q: %v", text, err)
	}
	for _, call := range changing(string(text)) {
		t.Errorf("%.200s", call)
	}
}

// tracedCalls are those that changes and its like look at, for strace. Others are not stopped: that would take longer than the call.
const tracedCalls = `/^(execve|mkdir|rename|unlink|link|symlink|mknod|rmdir|f?ch(mod|own)|f?truncate|fallocate|setxattr|u?mount|unshare|setns|open|p?write|clone|setsockopt|ioctl|send|recv)`

// Calls that change something, as strace prints them with -f and -yy.
var changes = []*regexp.Regexp{
	regexp.MustCompile(`^(mkdir|rename|unlink|link|symlink|mknod|rmdir|ch(mod|own)|fch(mod|own)|truncate|ftruncate|fallocate|setxattr|(u?mount|unshare|setns))\w*\(`),
	regexp.MustCompile(`^open\w*\(.*O_(WRONLY|RDWR|CREAT|TRUNC|TMPFILE)`),
	regexp.MustCompile(`^p?write\w*\(\d+</`),
	regexp.MustCompile(`^clone\w*\(.*CLONE_NEW`),
	regexp.MustCompile(`^setsockopt\(.*(IPT|IP6T|ARPT|EBT)_SO_SET`),
	regexp.MustCompile(`^ioctl\(.*(SIOCS|SIOCBR|SIOCADD|SIOCDEL|TUNSET)`),
	regexp.MustCompile(`^send.*(NFNL_MSG_BATCH_BEGIN|NFT_MSG_(NEW|DEL)|IPCTNL_MSG_CT_(NEW|DELETE))`),
}

// rtnetlink matches a message of rtnetlink that would change something; the number tells which is its answer. Kinds of links and
// qdiscs can't be asked for: a plugin may ask for one that can't be made, and be refused.
var (
	rtnetlink = regexp.MustCompile(`^send.*nlmsg_type=RTM_(?:NEW|DEL|SET)\w+.*?nlmsg_seq=(\d+)`)
	probe     = regexp.MustCompile(`^send.*nlmsg_type=RTM_NEW(LINK|QDISC)\b`)
)

// harmless matches what looks like a change and is none: tap looks whether it may open the device, and iptables is asked for its version.
var harmless = regexp.MustCompile(`^openat\([^)]*"/dev/(net/tun|null)"|^execve\("[^"]*/iptables", \["[^"]*", "--version"\]|^execve\("/opt/cni/bin/cnibox"`)

// changing returns the calls of a trace that change something.
func changing(trace string) (calls []string) {
	var lines []string
	for line := range strings.Lines(trace) {
		_, call, _ := strings.Cut(line, " ")
		lines = append(lines, strings.TrimSpace(call))
	}
	for i, call := range lines {
		changes := slices.ContainsFunc(changes, func(is *regexp.Regexp) bool { return is.MatchString(call) }) || strings.HasPrefix(call, "execve(") && i > 0
		if message := rtnetlink.FindStringSubmatch(call); message != nil {
			refused := regexp.MustCompile(`nlmsg_type=NLMSG_ERROR.*nlmsg_seq=` + message[1] + `\b.*error=-E`)
			changes = changes || !probe.MatchString(call) || !slices.ContainsFunc(lines[i:], refused.MatchString)
		}
		if changes && !harmless.MatchString(call) {
			calls = append(calls, call)
		}
	}
	return calls
}
