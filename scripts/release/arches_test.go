package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/process/box"
	"github.com/cnibox/cnibox/plugins"
)

// emulators are QEMU's names of architectures where they are not Go's.
var emulators = map[string]string{"amd64": "x86_64", "arm64": "aarch64", "mips64le": "mips64el"}

// TestArches runs the programs of each architecture that was built: all plugins say their versions, and those that give addresses give and take some.
// For other plugins the emulator is not enough: qemu-user knows neither the call that asks whether a file is a network namespace
// (NS_GET_NSTYPE), without which ADD refuses it, nor netlink but for links, addresses and routes.
func TestArches(t *testing.T) {
	for _, tree := range artefacts(t, "tree/linux-*") {
		arch := strings.TrimPrefix(filepath.Base(tree), "linux-")
		t.Run(arch, func(t *testing.T) {
			p := ofArch{t, tree, arch, t.TempDir()}
			if version := p.run("cnictl", nil, "", "--version"); !strings.HasPrefix(version, "cnictl v"+box.Version+" ") {
				t.Errorf("cnictl --version prints %s", version)
			}
			if _, err := os.Stat(filepath.Join(tree, "cni-conformance")); err == nil {
				if version := p.run("cni-conformance", nil, "", "--version"); !strings.HasPrefix(version, "cni-conformance v"+box.Version+", ") {
					t.Errorf("cni-conformance --version prints %s", version)
				}
			}
			for _, plugin := range plugins.All {
				var supported struct{ SupportedVersions []string }
				p.call(plugin.Name, "VERSION", `{"cniVersion": "1.1.0"}`, &supported)
				if len(supported.SupportedVersions) == 0 {
					t.Errorf("%s supports no version", plugin.Name)
				}
			}
			for ipam, address := range map[string]string{
				`"type": "host-local", "subnet": "10.5.0.0/24", "dataDir": "` + p.dir + `"`: "10.5.0.2/24",
				`"type": "static", "addresses": [{"address": "10.6.0.9/24"}]`:               "10.6.0.9/24",
			} {
				config := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "demo", "type": "bridge", "ipam": {%s}}`, ipam)
				name := strings.Split(ipam, `"`)[3]
				var result json.RawMessage
				p.call(name, "ADD", config, &result)
				var given struct{ IPs []struct{ Address string } }
				if err := json.Unmarshal(result, &given); err != nil || len(given.IPs) != 1 || given.IPs[0].Address != address {
					t.Errorf("ADD of %s returns %s: %v", name, result, err)
				}
				p.call(name, "CHECK", strings.TrimSuffix(config, "}")+`, "prevResult": `+string(result)+"}", nil)
				p.call(name, "DEL", config, nil)
			}
			if left, _ := filepath.Glob(p.dir + "/demo/10.*"); left != nil {
				t.Errorf("left after DEL: %s", left)
			}
		})
	}
}

// ofArch runs the programs of an architecture.
type ofArch struct {
	*testing.T
	tree, arch, dir string
}

// run runs a program, under a plugin's name if it is cnibox, and returns what it prints. Locks are in a /run of its own.
func (p ofArch) run(program string, env []string, input string, args ...string) string {
	p.Helper()
	file, err := filepath.Abs(filepath.Join(p.tree, program))
	if err != nil {
		p.Fatal(err)
	}
	how := []string{"unshare", "-m", "sh", "-c", `mount -t tmpfs none /run && exec "$@"`, "sh"}
	if p.arch != runtime.GOARCH {
		how = append(how, "qemu-"+cmp.Or(emulators[p.arch], p.arch)+"-static")
	}
	cmd := exec.Command(how[0], append(append(how[1:], file), args...)...)
	cmd.Env, cmd.Stdin = append(cmd.Environ(), env...), strings.NewReader(input)
	out, err := cmd.Output()
	if err != nil {
		p.Fatalf("%s %s %s: %v\n%s", program, args, env, err, out)
	}
	return string(out)
}

// call calls a plugin, and decodes what it prints.
func (p ofArch) call(plugin, command, config string, to any) {
	p.Helper()
	out := p.run("cnibox", []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=web", "CNI_IFNAME=eth0", "CNI_NETNS=/run/netns/none", "CNI_PATH=" + p.tree}, config, plugin)
	if to == nil {
		return
	}
	if err := json.Unmarshal([]byte(out), to); err != nil {
		p.Errorf("%s %s prints %s: %v", plugin, command, out, err)
	}
}
