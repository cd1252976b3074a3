package operator

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// humanz stands for humanz' program: it does with ip and jq what that does, and keeps the same file in the same form.
const humanz = `#!/bin/sh
set -e
store=/run/humanz-cni.json
config=$(cat)
get() { echo "$config" | jq -r "$1"; }
save() { changed=$(jq --indent 1 "$1" $store); echo "$changed" >$store; }
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0"]}' ;;
ADD)
	bridge=$(get .bridge) subnet=$(get .subnet)
	[ -e $store ] || seq 254 | jq -s --indent 1 --arg net "${subnet%.*}" 'map({IP: "\($net).\(.)/24", Used: (. == 1)})' >$store
	gateway=$(jq -r '.[0].IP' $store)
	if ! ip link show $bridge >/dev/null 2>&1; then
		ip link add $bridge mtu 1500 type bridge
		ip address add $gateway brd + dev $bridge
		ip link set $bridge up
	fi
	ip=$(jq -r 'map(select(.Used | not))[0].IP' $store)
	save "map(if .IP == \"$ip\" then .Used = true else . end)"
	host=veth$(printf %s $CNI_CONTAINERID | tail -c 8)
	ip -n ${CNI_NETNS##*/} link add $CNI_IFNAME mtu 1500 type veth peer name $host netns /proc/$$/ns/net
	ip link set $host up
	ip -n ${CNI_NETNS##*/} address add $ip brd + dev $CNI_IFNAME
	ip -n ${CNI_NETNS##*/} link set $CNI_IFNAME up
	ip -n ${CNI_NETNS##*/} route add default via ${gateway%/*} dev $CNI_IFNAME
	ip link set $host master $bridge
	echo "{\"cniVersion\":\"$(get .cniVersion)\",\"ips\":[{\"version\":\"4\",\"address\":\"$ip\",\"gateway\":\"${gateway%/*}\"}],\"dns\":{}}"
	;;
DEL)
	[ -e $CNI_NETNS ] || { echo '{"cniVersion":"0.3.1","code":999,"msg":"failed to Statfs: no such file or directory"}'; exit 1; }
	for ip in $(ip -j -n ${CNI_NETNS##*/} -4 address show dev $CNI_IFNAME | jq -r '.[0].addr_info[] | "\(.local)/\(.prefixlen)"'); do
		save "map(if .IP == \"$ip\" then .Used = false else . end)"
	done
	;;
esac
`

// TestMoveFromHumanz does what docs/moving/from-humanz.md says, on a node whose pods were attached by humanz' program.
func TestMoveFromHumanz(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/moving/from-humanz.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := func(kind string, count int) (list []string) {
		for _, m := range regexp.MustCompile("(?s) *```"+kind+"\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
			list = append(list, m[1])
		}
		if len(list) != count {
			t.Fatalf("the page has %d blocks of %s, want %d", len(list), kind, count)
		}
		return list
	}
	configs, scripts := blocks("json", 2), blocks("sh", 3)
	before, after := `{"cniVersion":"0.3.1","name":"humanz-cni","plugins":[`+configs[0]+`]}`, configs[1]

	host, _ := node(t)
	o := &operator{t, host}
	program := filepath.Join(t.TempDir(), "humanz-cni")
	if err := os.WriteFile(program, []byte(humanz), 0o755); err != nil {
		t.Fatal(err)
	}
	host.InstallPlugin(t, "humanz-cni", program)
	host.MustRun(t, "mkdir", "-p", "/etc/cni/net.d")
	host.Feed(t, configs[0], "sh", "-c", "cat >/etc/cni/net.d/10-humanz-cni-plugin.conf")
	old := map[string]*netlab.Pod{}
	for _, name := range []string{"web", "db", "dead", "lost", "ended"} { // they have the addresses from 2 to 6
		old[name] = host.NewPod(t, name)
		if _, err := host.AddList(before, old[name].RuntimeConf(nil)); err != nil {
			t.Fatal(err)
		}
	}
	old["dead"].Delete(t)                                                               // without DEL
	host.MustRun(t, "sh", "-c", "rm "+resultsDir+"/humanz-cni-"+old["lost"].ID+"-eth0") // and runs
	if err := host.DelList(before, old["ended"].RuntimeConf(nil)); err != nil {
		t.Fatal(err)
	}
	seen := look(t, old["web"])

	host.Feed(t, after, "sh", "-c", "cat >/etc/cni/humanz-cni.conflist")
	o.script(scripts[0])
	if newer := host.MustRun(t, "find", resultsDir, "-type", "f", "-newer", "/etc/cni/humanz-cni.conflist"); newer != "" {
		t.Errorf("results look as if they were made after the containers' namespaces: %s", newer)
	}
	o.script(scripts[1])
	host.MustRun(t, "rm", netlab.PluginDir+"/humanz-cni") // nothing needs it any more

	fresh := host.NewPod(t, "fresh")
	o.must("add", "humanz-cni", fresh.Path(), "--id", "fresh")
	if got, want := look(t, fresh), regexp.MustCompile(`100\.100\.0\.2\b`).ReplaceAllString(seen, "100.100.0.6"); got != want {
		t.Errorf("a new pod sees\n%s\nwant what an old one sees\n%s", got, want)
	}
	if got := look(t, old["web"]); got != seen {
		t.Errorf("an old pod sees\n%s\nwant what it saw before\n%s", got, seen)
	}
	for _, pair := range [][2]*netlab.Pod{{fresh, old["web"]}, {old["db"], old["web"]}, {old["web"], fresh}, {fresh, old["lost"]}} {
		address := strings.Fields(pair[1].MustRun(t, "ip", "-4", "-br", "address", "show", "dev", "eth0"))[2]
		if err := pair[0].Ping(strings.TrimSuffix(address, "/24"), netlab.Patience); err != nil {
			t.Error(err)
		}
	}
	leased := func(want string) {
		t.Helper()
		if got := host.MustRun(t, "sh", "-c", "cd /var/lib/cni/networks/humanz-cni; echo 100.*"); strings.TrimSpace(got) != want {
			t.Errorf("leases are %swant %s", got, want)
		}
	}
	leased("100.100.0.2 100.100.0.3 100.100.0.4 100.100.0.5 100.100.0.6")

	host.MustRun(t, "sh", "-c", `touch -d "5 minutes ago" /var/lib/cni/networks/*/* `+resultsDir+"/*"+old["dead"].ID+"*")
	o.must("gc", "humanz-cni", "--apply")
	leased("100.100.0.2 100.100.0.3 100.100.0.5 100.100.0.6")
	if code, printed := o.cnictl("repair"); code != 1 || strings.Count(printed, "restart the container") != 2 {
		t.Errorf("repair: exit code %d\n%s", code, printed)
	}
	for _, name := range []string{"web", "db"} {
		o.must("del", "humanz-cni", "--id", old[name].ID)
		old[name].Delete(t)
	}
	leased("100.100.0.5 100.100.0.6")
	old["lost"].Delete(t)
	o.script(scripts[2])
	leased("100.100.0.6")
	if got := host.MustRun(t, "ls", "/run", "/etc/cni/net.d"); strings.Contains(got, "humanz-cni.json") || strings.Contains(got, "plugin.conf") {
		t.Errorf("left: %s", got)
	}
}

// look returns what a pod sees of its IPv4 network.
func look(t *testing.T, pod *netlab.Pod) string {
	t.Helper()
	printed := pod.MustRun(t, "sh", "-c", "ip -4 address show dev eth0; ip -4 route")
	return regexp.MustCompile(`@if\d+`).ReplaceAllString(printed, "@ifN")
}

// script runs a block of a page, which ends at what fails, where cnictl is installed.
func (o *operator) script(text string) {
	o.Helper()
	cmd := o.host.Command("sh", "-ec", text)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(netlab.Cnictl(o))+":"+os.Getenv("PATH"))
	if out, err := o.host.Output(cmd); err != nil {
		o.Fatalf("%s\n%v\n%s", text, err, out)
	}
}
