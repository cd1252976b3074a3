package upgrade

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

const (
	leaseConf = `{"cniVersion":"1.0.0","name":"lan","type":"host-local",
		"ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/24"}],[{"subnet":"fd00:88::/64"}]]}}`
	leaseDir = "/var/lib/cni/networks/lan"
)

// TestMixedLeases has 200 processes, every other one of them the reference's, take and give back addresses of one directory at once. A
// range of 253 addresses is nearly full at the end.
func TestMixedLeases(t *testing.T) {
	t.Parallel()
	host := netlab.NewHost(t)
	ours := filepath.Join(t.TempDir(), "host-local")
	if err := os.Symlink(netlab.Cnibox(t), ours); err != nil {
		t.Fatal(err)
	}
	programs := []string{ours, filepath.Join(netlab.Reference(t), "host-local")}
	const processes = 200
	// A runtime repeats a call that waited for the others for too long.
	call := func(program, verb string, i int) (r netlab.PluginResult) {
		netlab.Eventually(t, func() error {
			r = host.Exec(t, program, netlab.PluginCall{Command: verb, ContainerID: fmt.Sprint("c", i), Netns: "/run/netns/none", IfName: "eth0",
				Path: netlab.PluginDir, Config: leaseConf})
			if r.ExitCode != 0 && strings.Contains(r.Stdout, "gave up waiting: after 45s") {
				return errors.New(r.Stdout)
			}
			return nil
		})
		return r
	}

	given := make([]string, processes)
	atOnce(processes, func(i int) {
		verbs := []string{"ADD", "DEL", "ADD"}
		if i%8 > 1 {
			verbs = verbs[:1]
		}
		for _, verb := range verbs {
			r := call(programs[i%2], verb, i)
			if r.ExitCode != 0 {
				t.Errorf("%s of %s: %s", verb, programs[i%2], r)
				return
			}
			given[i] = r.Stdout
		}
	})
	holders := map[string]string{}
	for i, text := range given {
		for _, ip := range (netlab.PluginResult{Stdout: text}).Result(t).IPs {
			id, address := fmt.Sprint("c", i), ip.Address.IP.String()
			if other := holders[address]; other != "" {
				t.Errorf("%s is given to %s and %s", address, other, id)
			}
			holders[address] = id
		}
	}
	if got := leasesOn(t, host); len(got) != 2*processes || len(holders) != len(got) {
		t.Errorf("%d leases, %d addresses given, want %d", len(got), len(holders), 2*processes)
	} else {
		for address, content := range got {
			if content != holders[address]+"\r\neth0" {
				t.Errorf("%s is given to %s and its file has %q", address, holders[address], content)
			}
		}
	}

	atOnce(processes, func(i int) {
		if r := call(programs[(i/2)%2], "DEL", i); r.ExitCode != 0 { // half of them the other one's
			t.Error(r)
		}
	})
	if left := leasesOn(t, host); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// leasesOn returns the content of the files that are named by addresses.
func leasesOn(t *testing.T, host *netlab.Host) map[string]string {
	t.Helper()
	leases := map[string]string{}
	host.Do(func() {
		entries, err := os.ReadDir(leaseDir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "l") { // lock, last_reserved_ip
				continue
			}
			content, err := os.ReadFile(filepath.Join(leaseDir, e.Name()))
			if err != nil {
				t.Error(err)
			}
			leases[e.Name()] = string(content)
		}
	})
	return leases
}

func atOnce(n int, f func(i int)) {
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { f(i) })
	}
	wait.Wait()
}
