package show

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// TestSortIsByValue sorts rows of which one has no value, and of which two would be the other way round as texts.
func TestSortIsByValue(t *testing.T) {
	address := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	old, young := time.Unix(1000, 0), time.Unix(20000, 0)
	attachments := []*node.Attachment{
		{ContainerID: "none"},
		{ContainerID: "ten", Network: "b", Pod: "b", IfName: "b", Addresses: address("10.0.0.10/24"), HostEnd: &node.Link{Name: "b"}, State: "b", Since: &old, Ports: []node.Port{{HostPort: 80}}, Netns: "b", Why: "b"},
		{ContainerID: "nine", Network: "c", Pod: "c", IfName: "c", Addresses: address("10.0.0.9/24"), HostEnd: &node.Link{Name: "c"}, State: "c", Since: &young, Ports: []node.Port{{HostPort: 8080}}, Netns: "c", Why: "c"},
	}
	networks := []*node.Network{
		{Name: "none", Gone: 5, Attachments: 7},
		{Name: "ten", Plugins: []string{"b"}, Pools: []*node.Pool{{Subnet: "10.0.10.0/24", Size: 1000, Used: 9, Gone: 1}}, Attachments: 30, File: "b"},
		{Name: "nine", Plugins: []string{"c"}, Pools: []*node.Pool{{Subnet: "10.0.9.0/24", Size: 200, Used: 10, Gone: 10}}, Attachments: 200, File: "c"},
	}
	ports := []publishedPort{
		{of: &node.Attachment{Owner: "none"}},
		{Port: node.Port{HostIP: "10.0.0.10", HostPort: 80, Protocol: "b"}, Address: "10.0.0.10", ContainerID: "ten", Network: "b", State: "b", of: &node.Attachment{}},
		{Port: node.Port{HostIP: "10.0.0.9", HostPort: 8080, Protocol: "c", ContainerPort: 1}, Address: "10.0.0.9", ContainerID: "nine", Network: "c", State: "c", of: &node.Attachment{}},
	}
	id := func(a *node.Attachment) string { return a.ContainerID }
	check(t, attachments, attachmentColumns, id, map[string]string{"container": "nine none ten", "addresses": "nine ten none", "age": "nine ten none", "": "none ten nine"})
	check(t, networks, networkColumns, func(w *node.Network) string { return w.Name }, map[string]string{
		"network": "nine none ten", "pool": "nine ten none", "size": "none nine ten", "used": "none ten nine", "gone": "ten none nine", "attachments": "none ten nine", "": "none ten nine"})
	check(t, ports, portColumns, func(p publishedPort) string { return p.ContainerID + p.of.Owner }, map[string]string{
		"host-ip": "nine ten none", "leads-to": "nine ten none", "container": "nine none ten", "": "none ten nine"})
}

// check sorts by each column, and by none. Where nothing else is wanted it is ten before nine, and none last.
func check[R any](t *testing.T, rows []R, columns []column[R], id func(R) string, wants map[string]string) {
	t.Helper()
	for _, c := range append(columns, column[R]{}) {
		want, has := wants[c.name]
		if !has {
			want = "ten nine none"
		}
		list, got := slices.Clone(rows), []string{}
		sortRows(list, columns, c.name)
		for _, r := range list {
			got = append(got, id(r))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("by %q: %v, want %s", c.name, got, want)
		}
	}
}
