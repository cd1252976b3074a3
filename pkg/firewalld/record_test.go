package firewalld

import (
	"slices"
	"testing"
)

func TestRecordText(t *testing.T) {
	r := record{attachment: "net/c0ffee/eth0", zone: "trusted", addresses: forward("10.88.0.2", "fd00::2").Addrs}
	const want = "attachment: net/c0ffee/eth0\nzone: trusted\naddresses: 10.88.0.2 fd00::2\n"
	if r.String() != want {
		t.Errorf("got %q", r)
	}
}

func TestParseRecord(t *testing.T) {
	tests := []struct {
		text string
		want record
		ok   bool
	}{
		{"attachment: a\nzone: z\naddresses: 10.0.0.1 fd00::1\n", record{"a", "z", forward("10.0.0.1", "fd00::1").Addrs}, true},
		{"attachment: a\nzone: z\n", record{attachment: "a", zone: "z"}, true},
		{"zone: z\nsomething: else\nattachment: a b", record{attachment: "a b", zone: "z"}, true},
		{"attachment: a\n", record{attachment: "a"}, false},
		{"attachment: a\nzone: z\naddresses: 10.0.0\n", record{}, false},
		{"attachment: a\nzone: z\naddresses: fe80::1%eth0\n", record{}, false},
		{"", record{}, false},
	}
	for _, tt := range tests {
		r, ok := parseRecord(tt.text)
		if ok != tt.ok || !equal(r, tt.want) {
			t.Errorf("%q: %+v, %v", tt.text, r, ok)
		}
	}
}

func equal(a, b record) bool {
	return a.attachment == b.attachment && a.zone == b.zone && slices.Equal(a.addresses, b.addresses)
}

func FuzzParseRecord(f *testing.F) {
	f.Add("attachment: net/c0ffee/eth0\nzone: trusted\naddresses: 10.88.0.2 fd00::2\n")
	f.Add("zone: \naddresses: ::ffff:1.2.3.4\n\nattachment: \r")
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := parseRecord(text)
		if !ok {
			return
		}
		if again, ok := parseRecord(r.String()); !ok || !equal(r, again) {
			t.Errorf("%+v is written as %q and read as %+v", r, r, again)
		}
	})
}
