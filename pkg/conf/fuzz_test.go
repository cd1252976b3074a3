package conf

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// fields is what FuzzConfig reads, through this package and encoding/json.
type fields struct {
	Name     string   `json:"name"`
	IsGW     bool     `json:"isGateway"`
	MTU      int      `json:"mtu"`
	Optional *int     `json:"vlan"`
	Search   []string `json:"search"`
	IPAM     struct {
		Type   string `json:"type"`
		Ranges [][]struct {
			Subnet string `json:"subnet"`
		} `json:"ranges"`
		Routes []struct {
			Dst string `json:"dst"`
		} `json:"routes"`
	} `json:"ipam"`
}

func readFields(o *Object) (f fields) {
	o.String("name", &f.Name)
	o.Bool("isGateway", &f.IsGW)
	o.Int("mtu", &f.MTU)
	o.OptionalInt("vlan", &f.Optional)
	o.Strings("search", &f.Search)
	ipam := o.Object("ipam")
	ipam.String("type", &f.IPAM.Type)
	ipam.ObjectLists("ranges", func(list []*Object) {
		for _, e := range list {
			e.String("subnet", new(string))
		}
	})
	ipam.Objects("routes", func(e *Object) { e.String("dst", new(string)) })
	o.StringMap(func(string, string) {})
	return f
}

// FuzzConfig reads any document strictly and leniently. What encoding/json
// takes and this package reads must be the same; what encoding/json refuses as
// JSON this package must refuse.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		`{"cniVersion":"1.0.0","name":"demo","type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"mtu":1450,
		  "ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/16"}],[{"subnet":"fd00::/64"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`,
		`{"NAME":"a","name":"b","MTU":9000,"isgateway":false,"search":["a","b"],"vlan":7}`,
		`{"name":"\ud83d\ude00\u0041","ipam":{"type":null,"routes":null},"vlan":null}`,
		`{"name":7,"mtu":"x","ipam":[],"search":{}}`,
		`{"mtu":1e3}`, `{"mtu":-0}`, `{"mtu":01}`, `{"":""}`, `[]`, `{"a":[[[[]]]]}`, "{\"name\":\"\xff\"}", `{"name":"\ud800"}`,
		`{"name": "demo"`, `{} {}`, `{"name": "demo",}`, `{"mtu": -}`, "{\"name\": \"a\nb\"}", `{"name": "\x"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := Parse(data)
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("accepted what is no JSON: %q", data)
		}
		lenient := o.Lenient()
		readFields(lenient)
		if lenient.Err() != nil {
			t.Fatalf("a lenient object has the error %v", lenient.Err())
		}
		got := readFields(o)
		_ = o.Object("ipam").JSON()
		var want fields
		if !comparable(data) || json.Unmarshal(data, &want) != nil {
			return
		}
		if got.Name != want.Name || got.IsGW != want.IsGW || got.MTU != want.MTU || got.IPAM.Type != want.IPAM.Type {
			t.Errorf("%s\ngot  %+v (error %v)\nwant %+v", data, got, o.Err(), want)
		}
	})
}

// comparable leaves out what this package reads differently on purpose: a null
// behind a value of the same key takes it back, objects of the same key are not
// merged, half a surrogate pair stays as it was written, and bytes that are no
// UTF-8 stay.
func comparable(data []byte) bool {
	text := strings.ToLower(string(data))
	if !utf8.Valid(data) || strings.Contains(text, `\u`) {
		return false
	}
	return !strings.Contains(text, "null") && strings.Count(text, `"ipam"`) <= 1
}
