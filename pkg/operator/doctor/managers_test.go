package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var (
	aBridge  = ownLink{"demo0", "demo0", "bridge", "bridge"}
	aHostEnd = ownLink{"veth0a1b2c3d", "veth*", "veth", "ether"}
)

func TestNetworkdMatches(t *testing.T) {
	for _, tt := range []struct {
		match           map[string][]string
		bridge, hostEnd bool
	}{
		{map[string][]string{"Name": {"*"}}, true, true},
		{map[string][]string{"Name": {"en* veth*"}}, false, true},
		{map[string][]string{"Name": {"en*", "demo?"}}, true, false},
		{map[string][]string{"Name": {"!veth* docker*"}}, true, false},
		{map[string][]string{"Type": {"ether"}}, false, true},
		{map[string][]string{"Kind": {"veth"}, "Name": {"ve-*"}}, false, false},
		{map[string][]string{"Driver": {"veth bridge"}}, true, true},
		{map[string][]string{"Name": {"*"}, "MACAddress": {"02:00:00:00:00:01"}}, false, false},
		{map[string][]string{"Path": {"pci-0000:02:00.0-*"}}, false, false},
		{nil, false, false},
	} {
		if aBridge.matches(tt.match) != tt.bridge || aHostEnd.matches(tt.match) != tt.hostEnd {
			t.Errorf("%v: bridge %v, host end %v", tt.match, aBridge.matches(tt.match), aHostEnd.matches(tt.match))
		}
	}
}

func TestNetworkManagerSpares(t *testing.T) {
	for spec, want := range map[string][2]bool{ // bridge, host end
		"interface-name:veth*": {false, true}, "interface-name:=demo0": {true, false}, "demo*": {true, false}, "*": {true, true},
		"type:bridge": {true, false}, "driver:veth": {false, true}, "mac:02:00:00:00:00:01": {false, false}, "type:wifi": {false, false},
	} {
		if got := [2]bool{aBridge.isSpared(spec), aHostEnd.isSpared(spec)}; got != want {
			t.Errorf("%s: %v, want %v", spec, got, want)
		}
	}
}

func TestConfigFiles(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		first + "/20-a.network": "; a comment\n[Match]\nName=a*\nName = b* \\\n  c*\n# [x]\n[Link]\nUnmanaged = yes\nno value\n", first + "/x.netdev": "",
		second + "/20-a.network": "[Match]\nName=hidden\n", second + "/10-b.network": "[Match]\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := configFiles(".network", first, second, "/nowhere"), []string{second + "/10-b.network", first + "/20-a.network"}; !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	ini := readINI(filepath.Join(first, "20-a.network"))
	if !slices.Equal(ini["Match"]["Name"], []string{"a*", "b*    c*"}) || !isYes(last(ini["Link"]["Unmanaged"])) || len(ini) != 2 || len(readINI("/nowhere")) != 0 {
		t.Errorf("read %v", ini)
	}
}
