package operator

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/trace"
	"github.com/cnibox/cnibox/test/netlab"
)

// cause is something because of which a packet gets lost.
type cause struct {
	name  string
	plant string // a script on the node, which has the functions of inField
	trace string // who asks whom
	code  string
	whose string // "": an administrator
	says  string // a part of the summary
	hand  string // what a person does where the remedy is no command
	undo  string // "": takes away what the function rule has made
	more  string // what else is asked when it is undone
	start func(t *testing.T, f *field) (stop func())
}

// field is a node with 20 containers on several networks, on which causes are planted.
type field struct {
	*operator
	outside *netlab.Outside
	pods    map[string]*netlab.Pod
}

const portmap = `{"type": "portmap", "capabilities": {"portMappings": true}}`

// networksOfField are behind a bridge or not, masqueraded or not, with lists and with policies, beside the network demo.
var networksOfField = map[string]string{
	"routed": `{"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.89.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}, ` + portmap,
	"listed": `{"type": "bridge", "bridge": "listed0", "isDefaultGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.90.0.0/24"}}, ` + portmap +
		`, {"type": "egress", "allow": ["192.0.2.254:80", "192.0.2.254"], "deny": ["192.0.2.254:443"]}`,
	"apart": `{"type": "bridge", "bridge": "apart0", "isDefaultGateway": true, "ipMasq": true, "ipam": {"type": "host-local", "subnet": "10.91.0.0/24"}}, ` + portmap +
		`, {"type": "firewall", "ingressPolicy": "same-bridge"}`,
	"plain": `{"type": "bridge", "bridge": "plain0", "isDefaultGateway": true, "ipam": {"type": "host-local", "subnet": "10.92.0.0/24"}}, {"type": "firewall", "ingressPolicy": "same-bridge"}`,
}

// inField are functions of scripts: what is done in a container, the name of its host end, a rule at a hook of a table of an administrator's, all of
// iptables away, and its rules as they are saved.
const inField = `inside() { pod=$1; shift; nsenter --net=/run/netns/$pod sh -ec "$*"; }
end() { n=$(inside $1 ip -o link show eth0 | sed 's/.*@if\([0-9]*\):.*/\1/'); ip -o link | sed -n "s/^$n: \([^@]*\)@.*/\1/p"; }
rule() { nft add table inet mine; nft add chain inet mine f "{ type filter hook $1 priority 5; }"; shift; nft add rule inet mine f "$*"; }
no_iptables() { for f in ip ip6; do for t in raw mangle nat filter; do nft delete table $f $t 2>/dev/null || true; done; done; }
restore() { iptables-restore --noflush; }
`

func newField(t *testing.T) *field {
	host, outside := node(t)
	return fieldOn(t, host, outside)
}

func fieldOn(t *testing.T, host *netlab.Host, outside *netlab.Outside) *field {
	outside.ServeTCP(t, netlab.OutsideIPv4+":80")
	host.Feed(t, demo, "sh", "-c", "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-demo.conflist")
	f := &field{&operator{t, host}, outside, map[string]*netlab.Pod{}}
	for name, plugins := range networksOfField {
		f.host.Feed(t, `{"cniVersion": "1.1.0", "name": "`+name+`", "plugins": [`+plugins+`]}`, "sh", "-c", "cat >/etc/cni/net.d/20-"+name+".conflist")
	}
	for _, c := range []struct{ network, names string }{
		{"demo", "web other c3 c4 c5 c6 c7 c8"}, {"routed", "box box2 box3 box4"}, {"listed", "kept kept2 kept3"}, {"apart", "app app2 app3"}, {"plain", "bare bare2"},
	} {
		for _, name := range strings.Fields(c.names) {
			pod := f.host.NewPod(t, name)
			f.pods[name] = pod
			pod.SetLoopbackUp(t)
			args := []string{"add", c.network, pod.Path(), "--id", name}
			published := map[string]string{"web": "8080:80", "c3": "8083:81", "box": "8081:80", "kept": "8082:80", "app": "8084:80"}[name]
			if published != "" {
				args = append(args, "-p", published)
			}
			if published != "" || name == "other" {
				pod.ServeTCP(t, ":80")
			}
			f.must(args...)
		}
	}
	return f
}

// run runs a script on the node.
func (f *field) run(t *testing.T, script string) {
	t.Helper()
	cmd := f.host.Command("sh", "-ec", inField+script)
	cmd.Env = f.env()
	if out, err := f.host.Output(cmd); err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
}

// ask traces a packet, and waits so long for an answer.
func (f *field) ask(t *testing.T, wait time.Duration, what string) (r trace.Report) {
	t.Helper()
	_, printed := f.cnictl(append([]string{"trace", "--json", "--timeout", wait.String()}, strings.Fields(what)...)...)
	if err := json.Unmarshal([]byte(printed), &r); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	return r
}

// wantAnswer traces packets that have to be answered.
func (f *field) wantAnswer(t *testing.T, when string, packets ...string) {
	t.Helper()
	for _, what := range packets {
		if r := f.ask(t, netlab.Patience, what); r.Cause != nil {
			t.Errorf("%s: trace %s: %s: %s\n%s", when, what, r.Cause.Code, r.Summary, r.Cause.Remedy)
		}
	}
}

// TestCauses plants causes on one node, one at a time. Trace names each, and whose it is. What it says is to be done is done as it is printed, if it is a
// command, and then the packet is answered; so it is when the cause is taken away.
func TestCauses(t *testing.T) {
	t.Parallel()
	f := newField(t)
	for i, c := range causes {
		if netlab.LeftOut(t, i, 3) {
			continue
		}
		t.Run(c.name, func(t *testing.T) { f.try(t, c) })
	}
}

func (f *field) try(t *testing.T, c cause) {
	if c.start != nil {
		defer c.start(t, f)()
	}
	f.run(t, c.plant)
	began := time.Now()
	r := f.ask(t, silence, c.trace)
	took := time.Since(began).Milliseconds()
	got, whose := cmp.Or(r.Cause, &trace.Cause{}), trace.Owner(cmp.Or(c.whose, string(trace.Administrator)))
	if got.Code != c.code || got.Whose != whose || !strings.Contains(r.Summary, c.says) {
		t.Errorf("cause %q of %q, want %q of %q, saying %q\n%s\n%s", got.Code, got.Whose, c.code, whose, c.says, r.Summary, got.Remedy)
	}
	helps := "yes"
	for steps := 1; r.Cause != nil && (r.Cause.Commands != nil || c.hand != ""); steps++ {
		if r.Cause.Commands == nil {
			helps = "by hand"
			f.run(t, c.hand)
		} else {
			f.run(t, r.Cause.Remedy)
		}
		before := r.Summary
		if r = f.ask(t, silence, c.trace); steps > 2 || r.Cause != nil && r.Summary == before {
			t.Errorf("the remedy does not help: %s\n%s", r.Summary, cmp.Or(r.Cause, &trace.Cause{}).Remedy)
			break
		}
	}
	if got.Commands == nil && c.hand == "" {
		helps = "none"
	}
	f.run(t, cmp.Or(c.undo, "nft delete table inet mine"))
	f.wantAnswer(t, "when it is gone", cmp.Or(c.more, c.trace))
	t.Logf("| %s | `%s` | %s | %s | %d |", c.name, got.Code, got.Whose, helps, took)
}
