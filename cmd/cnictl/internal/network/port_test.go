package network

import (
	"strings"
	"testing"
)

func TestParsePort(t *testing.T) {
	tests := []struct {
		text string
		want Port
	}{
		{"8080:80", Port{"", 8080, 80, "tcp"}},
		{"8080:80/udp", Port{"", 8080, 80, "udp"}},
		{"8080:80/SCTP", Port{"", 8080, 80, "sctp"}},
		{"127.0.0.1:8080:80/tcp", Port{"127.0.0.1", 8080, 80, "tcp"}},
		{"[::1]:53:5353/udp", Port{"::1", 53, 5353, "udp"}},
		{"[2001:DB8::0:1]:1:65535", Port{"2001:db8::1", 1, 65535, "tcp"}},
	}
	for _, test := range tests {
		got, err := ParsePort(test.text)
		if err != nil || got != test.want {
			t.Errorf("%s: got %+v, %v, want %+v", test.text, got, err, test.want)
		}
	}
}

func TestParsePortRefuses(t *testing.T) {
	tests := map[string]string{ // to what the error says
		"":                "the host's port is missing",
		"80":              "the host's port is missing",
		"80/tcp":          "the host's port is missing",
		"8080:80/icmp":    "protocol",
		"8080:80/":        "protocol",
		"0:80":            `"0" is no port`,
		"8080:65536":      `"65536" is no port`,
		":80":             `"" is no port`,
		"8080:-1":         `"-1" is no port`,
		"a:b:c":           `"a" is no IP address`,
		"::1:8080:80":     "brackets",
		"[127.0.0.1]:1:2": "brackets",
		"[::1:8080:80":    "brackets",
		"[::1]":           "the host's port is missing",
		"[::1]:80":        "no port",
		"http:8080:80":    "no IP address",
	}
	for text, want := range tests {
		_, err := ParsePort(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "-p "+text) {
			t.Errorf("%q: got error %v, want one with %q", text, err, want)
		}
	}
}

func TestPortString(t *testing.T) {
	for text, want := range map[string]string{
		"8080:80":         "port 8080 -> 80/tcp",
		"10.0.0.1:1:2":    "10.0.0.1:1 -> 2/tcp",
		"[::1]:53:53/udp": "[::1]:53 -> 53/udp",
	} {
		port, err := ParsePort(text)
		if err != nil || port.String() != want {
			t.Errorf("%s: got %q, %v, want %q", text, port, err, want)
		}
	}
}
