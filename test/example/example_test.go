// Package example runs the plugin that docs/project/writing-a-plugin.md writes, and makes sure that the page shows its code.
package example

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/box"
	"github.com/cnibox/cnibox/test/example/vxlan"
	"github.com/cnibox/cnibox/test/netlab"
)

// table is that of a binary with the plugin.
var table = plugin.Table{
	{Name: "vxlan", Kind: plugin.Main, Summary: "put the container into a VXLAN", Plugin: vxlan.Plugin{}},
}

// TestMain is that binary, too, when it is called by the plugin's name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "vxlan" {
		b := &box.Box{Plugins: table}
		os.Exit(b.Main(box.OS()))
	}
	netlab.Main(m)
}

// TestVXLAN has containers of two nodes reach each other, and goes through all verbs.
func TestVXLAN(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/project/writing-a-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```jsonc\n(.*?)```").FindSubmatch(text)
	if shown == nil {
		t.Fatal("the page has no network")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	nodes := []*netlab.Host{netlab.NewHost(t), netlab.NewHost(t)}
	nodes[0].MustRun(t, "ip", "link", "add", "eth0", "index", "1000", "type", "veth", "peer", "name", "eth0", "netns", nodes[1].NetnsPath())
	var pods []*netlab.Pod
	var conflists []string
	for i, host := range nodes {
		host.MustRun(t, "sh", "-ec", fmt.Sprintf("ip address add 172.31.7.%d/24 dev eth0; ip link set eth0 up", i+1))
		host.InstallPlugins(t, "host-local")
		host.InstallPlugin(t, "vxlan", self)
		// What differs between nodes: where the other one is, and which addresses are handed out.
		conflists = append(conflists, strings.NewReplacer("172.31.7.2", fmt.Sprint("172.31.7.", 2-i), "10.99.0.10", fmt.Sprintf("10.99.0.%d0", i+1)).Replace(string(shown[1])))
		pods = append(pods, host.NewPod(t, fmt.Sprint("web", i)))
	}
	for i, host := range nodes {
		if err := host.StatusList(conflists[i]); err != nil {
			t.Errorf("STATUS: %v", err)
		}
		if _, err := host.AddList(conflists[i], pods[i].RuntimeConf(nil)); err != nil {
			t.Fatalf("ADD: %v", err)
		}
	}
	if err := pods[0].Ping("10.99.0.20", netlab.Patience); err != nil {
		t.Error(err)
	}
	for i, host := range nodes {
		rt := pods[i].RuntimeConf(nil)
		if err := host.CheckList(conflists[i], rt); err != nil {
			t.Errorf("CHECK: %v", err)
		}
		if err := host.CheckList(strings.Replace(conflists[i], `"vni": 7`, `"vni": 8`, 1), rt); err == nil || !strings.Contains(err.Error(), "is not in VXLAN 8") {
			t.Errorf("CHECK with another number: %v", err)
		}
		if err := host.DelList(conflists[i], rt); err != nil {
			t.Errorf("DEL: %v", err)
		}
		if left := host.MustRun(t, "find", "/var/lib/cni/networks/wide", "-name", "10.*") + pods[i].MustRun(t, "ip", "-o", "link", "show", "type", "vxlan"); left != "" {
			t.Errorf("DEL has left\n%s", left)
		}
		bad := strings.Replace(conflists[i], `"vni": 7`, `"vni": 16777216`, 1)
		if _, err := host.AddList(bad, rt); err == nil || !strings.Contains(err.Error(), "a number from 0 to 16777215") {
			t.Errorf("ADD with a number that is too large: %v", err)
		}
	}
}

// TestPage makes sure that the page shows the plugin's code as it is.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/project/writing-a-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("vxlan/vxlan.go")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 5 {
		t.Errorf("the page has %d blocks of code", len(blocks))
	}
	for _, m := range blocks {
		if !strings.Contains(string(code), m[1]) && !strings.Contains(string(here), m[1]) {
			t.Errorf("this is not in the plugin:\n%s", m[1])
		}
	}
}
