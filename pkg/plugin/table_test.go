package plugin

import "testing"

func TestFind(t *testing.T) {
	table := Table{{Name: "device"}, {Name: "host-device"}, {Name: "vlan"}, {Name: "macvlan"}, {Name: "host-local"}}
	for name, want := range map[string]string{
		"host-device":       "host-device",
		"device":            "device",
		"x-device":          "device",
		"x-host-device":     "host-device", // the longest
		"ghost-device":      "device",
		"cnv-macvlan":       "macvlan",
		"a-b.c-host-local":  "host-local",
		"a--vlan":           "vlan",
		"macvlan-x":         "",
		"xvlan":             "",
		"local":             "",
		"X-VLAN":            "",
		"vlan-":             "",
		"-":                 "",
		"":                  "",
		"host-local.backup": "",
	} {
		got := ""
		if row := table.Find(name); row != nil {
			got = row.Name
		}
		if got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}
