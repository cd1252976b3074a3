package conntrack

import (
	"encoding/hex"
	"testing"
)

// dumped is what the kernel lists of one flow, in zone 7.
const dumped = "3400018014000180" + "08000100c00002fe" + "08000200c0000201" +
	"1c000280" + "0500010011000000" + "060002000fac0000" + "0600030014e90000" +
	"34000280" + "14000180" + "080001000a010009" + "08000200c00002fe" +
	"1c000280" + "0500010011000000" + "0600020000350000" + "060003000fac0000" +
	"0600120000070000" + "080003000000000a" + "0800080000000000" + "08000c006845fa6f"

// FuzzParseEntry reads what the kernel might say, on a little-endian machine.
func FuzzParseEntry(f *testing.F) {
	seed, err := hex.DecodeString(dumped)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	for _, cut := range []int{4, 8, 52, 60, 104, 112, 128} {
		f.Add(seed[:cut])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, ok := parseEntry(data)
		if !ok {
			return
		}
		// A deletion without one of these would be of other flows, or of all.
		if len(e.tuple) == 0 || len(e.id) != 4 {
			t.Errorf("an entry without a name: %+v", e)
		}
		_ = e.String()
	})
}

func TestParseEntry(t *testing.T) {
	data, err := hex.DecodeString(dumped)
	if err != nil {
		t.Fatal(err)
	}
	e, ok := parseEntry(data)
	if !ok || e.String() != "udp from 192.0.2.254:4012 to 192.0.2.1:5353" || e.leadsTo.String() != "10.1.0.9:53" ||
		hex.EncodeToString(e.zone) != "0007" || hex.EncodeToString(e.id) != "6845fa6f" {
		t.Errorf("got %+v, %v", e, ok)
	}
}
