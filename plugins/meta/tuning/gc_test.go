package tuning

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/plugin"
)

func TestGC(t *testing.T) {
	const other = `{"mtu":1500,"owner":"somebody else"}`
	tests := []struct {
		name  string
		files map[string]string // in dataDir
		cache []string
		valid []plugin.Attachment
		want  []string // files left in dataDir
	}{
		{"no directory", nil, nil, nil, nil},
		{"empty list", map[string]string{"cid_eth0.json": recorded, "cid_eth1.json": recorded}, nil, nil, nil},
		{"valid", map[string]string{"cid_eth0.json": recorded, "old_eth0.json": recorded}, nil,
			[]plugin.Attachment{{ContainerID: "cid", IfName: "eth0"}}, []string{"cid_eth0.json"}},
		{"another interface of a valid container", map[string]string{"cid_eth0.json": recorded, "cid_eth1.json": recorded}, nil,
			[]plugin.Attachment{{ContainerID: "cid", IfName: "eth0"}}, []string{"cid_eth0.json"}},
		{"on another network", map[string]string{"cid_eth0.json": recorded, "old_eth0.json": recorded}, []string{"other-cid-eth0", "net-x-eth0"}, nil,
			[]string{"cid_eth0.json"}},
		{"on another network by another interface", map[string]string{"cid_eth0.json": recorded}, []string{"other-cid-net1"}, nil, []string{"cid_eth0.json"}},
		{"id that is part of another", map[string]string{"cid_eth0.json": recorded}, []string{"other-xcid-eth0", "other-cidx-eth0"}, nil, nil},
		{"underscores", map[string]string{"a_b_c_d.json": recorded, "a_b_x.json": recorded, "y_z.json": recorded}, []string{"other-a_b-eth0"},
			[]plugin.Attachment{{ContainerID: "y", IfName: "z"}}, []string{"a_b_c_d.json", "a_b_x.json", "y_z.json"}},
		{"half-written", map[string]string{"cid_eth0.json.tmp": "", "old_eth0.json": ""}, nil, nil, nil},
		{"files of others", map[string]string{"cid_eth0.json": other, "notes.json": "{}", "cid_eth0": "", "_eth0.json": "", "cid_.json": ""}, nil, nil,
			[]string{"_eth0.json", "cid_.json", "cid_eth0", "cid_eth0.json", "notes.json"}},
	}
	for _, tt := range tests {
		l := newLab(t)
		for name, text := range tt.files {
			l.write("/run/data/"+name, text)
		}
		for _, name := range tt.cache {
			l.write(cacheDir+"/"+name, "{}")
		}
		r := l.request(plugin.GC, `,"dataDir":"/run/data"`)
		r.Key = plugin.Key{Network: "net"}
		r.Valid, r.HasValid = tt.valid, true
		if err := l.call(r); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, l.files("/run/data")); diff != "" {
			t.Errorf("%s: files left (-want +got):\n%s", tt.name, diff)
		}
	}
}
