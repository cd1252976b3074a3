package result

import (
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

func TestParseResolvConf(t *testing.T) {
	got := ParseResolvConf(`# comment
; another
nameserver 192.0.2.1
   nameserver	192.0.2.2 ignored
nameserver
domain one.example
domain two.example
search a.example b.example
search c.example
options ndots:5
options edns0 trust-ad
#nameserver 192.0.2.3
sortlist 10.0.0.0`)
	want := types.DNS{
		Nameservers: []string{"192.0.2.1", "192.0.2.2"}, Domain: "two.example",
		Search: []string{"a.example", "b.example", "c.example"}, Options: []string{"ndots:5", "edns0", "trust-ad"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
