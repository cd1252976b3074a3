package tuning

import (
	"encoding/json"
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// recorded is a file of the reference plugin.
const recorded = "{\n \"mac\": \"02:00:00:00:00:01\",\n \"promisc\": false,\n \"mtu\": 1500,\n \"allmulti\": false,\n \"txQLen\": 1000\n}"

func TestBackupForm(t *testing.T) {
	tests := []struct{ text, canonical string }{
		{recorded, recorded},
		{"{\n \"allmulti\": true\n}", "{\n \"allmulti\": true\n}"},
		{`{"txQLen":0,"mtu":1500,"mac":"02-00-00-00-00-0A","PROMISC":true}`, "{\n \"mac\": \"02:00:00:00:00:0a\",\n \"promisc\": true,\n \"mtu\": 1500,\n \"txQLen\": 0\n}"},
		{`{"mac":"","mtu":-1,"txQLen":-1,"allmulti":"x","promisc":null}`, "{\n}"},
		{`{"mac":"01:00:00:00:00:00","mtu":99999999999}`, "{\n}"},
		{`{"mtu":0}`, "{\n}"},
		{`{"new":1,"mtu":70000}`, "{\n \"mtu\": 70000\n}"},
		{`{"ifname":"eth0","network":"lan","mtu":1500,"containerID":"web"}`,
			"{\n \"mtu\": 1500,\n \"network\": \"lan\",\n \"containerID\": \"web\",\n \"ifname\": \"eth0\"\n}"},
		{"{\"network\":\"lan\",\"containerID\":\"web\",\"ifname\":\"e\\u0001\"}", "{\n \"network\": \"lan\",\n \"containerID\": \"web\",\n \"ifname\": \"e\\u0001\"\n}"},
		{"", "{\n}"},
		{"{", "{\n}"},
	}
	for _, tt := range tests {
		b, _ := parseBackup([]byte(tt.text))
		if got := string(b.text()); got != tt.canonical {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.canonical)
		}
	}
}

func TestIsBackup(t *testing.T) {
	for text, want := range map[string]bool{
		recorded: true, ``: true, `{}`: true, `{"mtu":"x"}`: true, `{"mtu":1500,"network":"lan"}`: true, `{"mtu":1500,"network":"lan","containerID":"web","ifname":"eth0"}`: true,
		`{"mtu":1500,"name":"x"}`: false, `[]`: false, `{`: false, `text`: false,
	} {
		if _, got := parseBackup([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// The reference plugin reads what we write.
func TestBackupForTheReference(t *testing.T) {
	b := backup{values{"02:00:00:00:00:01", "false", "1500", "true", "1000"}, plugin.Key{Network: "lan", ContainerID: "web", IfName: "eth0"}}
	var read struct {
		Mac      string `json:"mac,omitempty"`
		Promisc  *bool  `json:"promisc,omitempty"`
		Mtu      int    `json:"mtu,omitempty"`
		Allmulti *bool  `json:"allmulti,omitempty"`
		TxQLen   *int   `json:"txQLen,omitempty"`
	}
	if err := json.Unmarshal(b.text(), &read); err != nil {
		t.Fatal(err)
	}
	if read.Mac != b.values[mac] || *read.Promisc || read.Mtu != 1500 || !*read.Allmulti || *read.TxQLen != 1000 {
		t.Errorf("%s is read as %+v", b.text(), read)
	}
}

func FuzzBackup(f *testing.F) {
	for _, text := range []string{recorded, "{}", `{"mac":"zz","mtu":-5}`, `{"mtu":1e400}`, `{"promisc":true`, `{"txQLen":4294967295}`, `{"network":"lan"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		b, _ := parseBackup(text)
		b.key.Network = "lan"
		out := b.text()
		again, isBackup := parseBackup(out)
		if !json.Valid(out) || !isBackup || string(again.text()) != string(out) {
			t.Fatalf("%q is written as %q, which reads as %q", text, out, again.text())
		}
	})
}
