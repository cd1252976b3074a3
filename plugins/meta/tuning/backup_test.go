package tuning

import (
	"encoding/json"
	"testing"
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
		{`{"new":1,"mtu":1500}`, "{\n \"mtu\": 1500\n}"},
	}
	for _, tt := range tests {
		a, ok := parseBackup([]byte(tt.text))
		if !ok {
			t.Errorf("%s: not taken", tt.text)
			continue
		}
		if got := string(formatBackup(a)); got != tt.canonical {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.canonical)
		}
	}
}

func TestIsBackup(t *testing.T) {
	for text, want := range map[string]bool{
		recorded: true, ``: true, `{}`: true, `{"mtu":"x"}`: true,
		`{"mtu":1500,"name":"x"}`: false, `[]`: false, `{`: false, `text`: false,
	} {
		if got := isBackup([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func FuzzBackup(f *testing.F) {
	for _, text := range []string{recorded, "{}", `{"mac":"zz","mtu":-5}`, `{"mtu":1e400}`, `{"promisc":true`, `{"txQLen":4294967295}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		isBackup(text)
		a, ok := parseBackup(text)
		if !ok {
			return
		}
		out := formatBackup(a)
		if !json.Valid(out) || !isBackup(out) {
			t.Fatalf("%q is written as %q", text, out)
		}
		again, ok := parseBackup(out)
		if !ok || string(formatBackup(again)) != string(out) {
			t.Fatalf("%q is written as %q, which reads as %q", text, out, formatBackup(again))
		}
	})
}
