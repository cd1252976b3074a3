package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestHardware gives a container hardware, which the kernel puts back to the first network namespace when the container's ends.
func TestHardware(t *testing.T) {
	netlab.Need(t, netlab.Hardware)
	devices := strings.Fields(os.Getenv(netlab.HardwareVariable))
	n := &guest{T: t, plugin: filepath.Join(t.TempDir(), "host-device")}
	if err := os.Symlink(netlab.Cnibox(t), n.plugin); err != nil {
		t.Fatal(err)
	}
	for _, act := range []struct{ name, does string }{
		{"changes nothing", ""},
		{"changes all", "link set eth0 down\nlink set eth0 name docker0\nlink set docker0 alias x address 02:45:00:00:00:66 mtu 1300\n" +
			"link property add dev docker0 altname cni0\nlink property add dev docker0 altname DEVICE"},
		{"has a link like it", "link set eth0 down\nlink set eth0 name net7 alias x\nlink add eth0 type veth peer name other\nlink set eth0 alias DEVICE\n" +
			"link set lo alias DEVICE"},
		{"moves it to another namespace", "link set eth0 netns sub name dev5"},
	} {
		isHidden := strings.Contains(act.does, "netns")
		for _, call := range []struct {
			name, command, netns string
			end, replace         bool
		}{
			{name: "DEL", command: "DEL", netns: "/run/netns/web"},
			{name: "DEL without the path", command: "DEL"},
			{name: "GC", command: "GC"},
			{name: "DEL with the namespace gone", command: "DEL", netns: "/run/netns/web", end: true},
			{name: "DEL without the path and with the namespace gone", command: "DEL", end: true},
			{name: "DEL with another namespace at the path", command: "DEL", netns: "/run/netns/web", end: true, replace: true},
			{name: "GC with the namespace gone", command: "GC", end: true},
		} {
			t.Run(act.name+", "+call.name, func(t *testing.T) {
				n.T = t
				t.Cleanup(func() {
					for _, name := range []string{"web", "sub"} {
						_ = netlab.RunOnMachine(exec.Command("ip", "netns", "del", name)) // which may be gone
					}
				})
				n.device = devices[0]
				devices = append(devices[1:], n.device)
				n.ip("", "link set "+n.device+" alias uplink address 02:45:00:00:00:09 mtu 1400")
				before := n.link()
				n.ip("", "netns add web\nnetns add sub")
				n.must(n.call("ADD", "/run/netns/web"))
				n.ip("web", strings.ReplaceAll(act.does, "DEVICE", n.device))
				if call.end {
					n.ip("", "netns del web\nnetns del sub")
				}
				if call.replace {
					n.ip("", "netns add web")
				}
				err := n.call(call.command, call.netns)
				if isHidden && !call.end {
					if err == nil || n.notes() != 1 || n.has(n.device) {
						t.Errorf("answered %v, with %d notes", err, n.notes())
					}
					n.ip("", "netns del web\nnetns del sub")
					err = n.call("DEL", "/run/netns/web")
				}
				n.must(err)
				netlab.Eventually(t, func() error { // the kernel may give a device back later than a call waits: then GC does the rest
					if n.notes() > 0 && call.end {
						n.must(n.call("GC", ""))
					}
					if after := n.link(); after != before || n.notes() != 0 {
						return fmt.Errorf("before:\n%s\nafter:\n%s\n%d notes", before, after, n.notes())
					}
					return nil
				})
			})
		}
	}
}

// guest is the machine, whose host namespace is the first one.
type guest struct {
	*testing.T
	device, plugin string
}

func (n *guest) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// ip has ip read commands, in a named namespace or none.
func (n *guest) ip(netns, commands string) {
	n.Helper()
	cmd := exec.Command("ip", "-batch", "-")
	if netns != "" {
		cmd = exec.Command("ip", "-n", netns, "-batch", "-")
	}
	var said strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(commands+"\n"), &said, &said
	if err := netlab.RunOnMachine(cmd); err != nil {
		n.Fatalf("%s: %v: %s", commands, err, &said)
	}
}

// call calls the plugin.
func (n *guest) call(command, netns string) error {
	cmd := exec.Command(n.plugin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID=web", "CNI_IFNAME=eth0", "CNI_PATH="+filepath.Dir(n.plugin), "CNI_NETNS="+netns)
	cmd.Stdin = strings.NewReader(`{"cniVersion": "1.1.0", "name": "lan", "type": "host-device", "device": "` + n.device + `", "cni.dev/valid-attachments": []}`)
	var answer strings.Builder
	cmd.Stdout = &answer
	err := netlab.RunOnMachine(cmd)
	var failure netlab.CNIError
	if err != nil && json.Unmarshal([]byte(answer.String()), &failure) == nil {
		return &failure
	}
	return err
}

// link describes the device on the host, which has it or gets it soon.
func (n *guest) link() string {
	n.Helper()
	var link []map[string]any
	netlab.Until(n, "the device on the host", func() bool { return n.has(n.device) })
	var printed strings.Builder
	cmd := exec.Command("ip", "-j", "link", "show", "dev", n.device)
	cmd.Stdout = &printed
	n.must(netlab.RunOnMachine(cmd))
	n.must(json.Unmarshal([]byte(printed.String()), &link))
	text, err := json.Marshal([]any{link[0]["address"], link[0]["mtu"], link[0]["ifalias"], link[0]["altnames"], link[0]["flags"]})
	n.must(err)
	return string(text)
}

func (n *guest) has(name string) bool {
	return netlab.RunOnMachine(exec.Command("ip", "link", "show", "dev", name)) == nil
}

func (n *guest) notes() int {
	files, _ := filepath.Glob("/run/cnibox/host-device/*")
	return len(files)
}
