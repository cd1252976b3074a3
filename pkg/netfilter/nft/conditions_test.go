package nft

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

func TestParseConditions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		family int
		words  string // separated by |
		want   string
	}{
		{unix.AF_INET, "", ""},
		{unix.AF_INET, "ip|saddr|!=|10.0.0.0/8", "saddr != {10.0.0.0/8}"},
		{unix.AF_INET, "ip saddr != 10.0.0.0/8", "saddr != {10.0.0.0/8}"},
		{unix.AF_INET, "ip saddr|!=10.0.0.0/8", "saddr != {10.0.0.0/8}"},
		{unix.AF_INET, "saddr|ne|10.1.2.3/8", "saddr != {10.0.0.0/8}"},
		{unix.AF_INET, "ip|daddr|192.0.2.1", "daddr == {192.0.2.1/32}"},
		{unix.AF_INET, "ip daddr eq 192.0.2.1", "daddr == {192.0.2.1/32}"},
		{unix.AF_INET, "ip saddr {192.0.2.1, 10.0.0.0/8,10.0.0.0/8}", "saddr == {10.0.0.0/8,192.0.2.1/32}"},
		{unix.AF_INET, "ip|saddr|{|10.0.0.0/8|,|192.0.2.1|,|}", "saddr == {10.0.0.0/8,192.0.2.1/32}"},
		{unix.AF_INET6, "ip6 saddr != { fc00::/7, fe80::/10 }", "saddr != {fc00::/7,fe80::/10}"},
		{unix.AF_INET6, "saddr 2001:DB8::1", "saddr == {2001:db8::1/128}"},
		{unix.AF_INET, "iifname eth0", "iifname == {eth0}"},
		{unix.AF_INET, `iifname != "eth0"`, "iifname != {eth0}"},
		{unix.AF_INET, `meta iifname { "eth*", ens3 }`, "iifname == {ens3,eth*}"},
		{unix.AF_INET, "mark 0x10", "mark == {0x10/0xffffffff}"},
		{unix.AF_INET, "meta mark != 1/1", "mark != {0x1/0x1}"},
		{unix.AF_INET, "mark and 0xf0 == 0x10", "mark == {0x10/0xf0}"},
		{unix.AF_INET, "meta mark & 0XF0 != 0", "mark != {0x0/0xf0}"},
		{unix.AF_INET, "mark and 3 { 1, 2 }", "mark == {0x1/0x3,0x2/0x3}"},
		{unix.AF_INET, "ip saddr 10.0.0.0/8 iifname eth0|mark|!=|4", "saddr == {10.0.0.0/8} iifname == {eth0} mark != {0x4/0xffffffff}"},
	} {
		f := &ipv4
		if tt.family == unix.AF_INET6 {
			f = &ipv6
		}
		words := strings.Split(tt.words, "|")
		c, err := parseConditions("conditionsV4", words, f)
		if err != nil || c.String() != tt.want {
			t.Errorf("%q: %q, %v; want %q", words, c, err, tt.want)
		}
		if err := ParseConditions("conditionsV4", words, tt.family); err != nil || (c.id == 0) != (tt.want == "") {
			t.Errorf("%q: id %d, %v", words, c.id, err)
		}
	}
}

func TestParseConditionsRefuses(t *testing.T) {
	t.Parallel()
	many := "saddr {" + strings.Repeat("10.0.0.1,", maxValues+1) + "10.0.0.2}" // one value many times is one
	tooMany := "mark {"
	for i := range maxValues + 1 {
		tooMany += fmt.Sprintf("%d,", i)
	}
	for words, want := range map[string]string{
		"tcp dport 80":                            `"tcp" stands where there should be saddr, daddr, iifname or mark`,
		"ip protocol tcp":                         `"protocol" stands where`,
		"ct state new":                            `"ct" stands where`,
		"meta saddr 10.0.0.1":                     `"saddr" stands where`,
		"ip iifname eth0":                         `"iifname" stands where`,
		"ip ip saddr 10.0.0.1":                    `"ip" stands where`,
		"ip6 saddr fd00::/8":                      `"ip6" never matches connections of IPv4`,
		"ip":                                      "ends where there should be saddr",
		"ip saddr":                                "ends where there should be an address or network",
		"ip saddr fd00::1":                        `"fd00::1" stands where there should be an address or network`,
		"ip saddr 10.0.0.1-10.0.0.9":              `"10.0.0.1-10.0.0.9" stands where`,
		"ip saddr @trusted":                       `"@trusted" stands where`,
		"ip saddr 10.0.0.0/33":                    `"10.0.0.0/33" stands where`,
		"ip saddr { }":                            `"}" stands where there should be an address`,
		"ip saddr { 10.0.0.1":                     `ends where there should be "," or "}"`,
		"ip saddr { 10.0.0.1,":                    "ends where there should be an address",
		"ip saddr { 10.0.0.1 10.0.0.":             `"10.0.0." stands where there should be "," or "}"`,
		"ip saddr ! 10.0.0.1":                     `"!" stands where`,
		"ip saddr < 10.0.0.1":                     `"<" stands where`,
		"ip saddr 10.0.0.1 return":                `"return" stands where`,
		"ip saddr 10.0.0.1; drop":                 `"10.0.0.1;" stands where`,
		"iifname *":                               `"*" stands where there should be a link's name`,
		"iifname e*h":                             `"e*h" stands where`,
		"iifname abcdefghijklmnop":                `stands where there should be a link's name`,
		`iifname "eth0`:                           `stands where there should be a link's name`,
		`iifname ""`:                              `ends where`,
		"mark eth0":                               `"eth0" stands where there should be a mark`,
		"mark 0x10/0xf":                           `"0x10/0xf" stands where`,
		"mark 0x100000000":                        `stands where there should be a mark`,
		"mark and x == 1":                         `"x" stands where there should be a mask`,
		"mark and 1 == 2":                         `"2" stands where there should be a mark within the mask`,
		"mark -1":                                 `"-1" stands where`,
		tooMany + "999}":                          "may have 8 and 256",
		strings.Repeat("mark {1,2} ", maxLists+1): "has 9 lists",
	} {
		err := ParseConditions("conditionsV4", strings.Split(words, " "), unix.AF_INET)
		var shown *types.Error
		if !errors.As(err, &shown) || shown.Code != types.ErrInvalidNetworkConfig || !strings.HasPrefix(shown.Msg, "conditionsV4: ") ||
			!strings.Contains(shown.Msg, want) || !strings.Contains(shown.Details, "iptables") {
			t.Errorf("%q: %v; want %q", words, err, want)
		}
	}
	if err := ParseConditions("conditionsV4", []string{many}, unix.AF_INET); err != nil {
		t.Error(err)
	}
}

// FuzzParseConditions makes sure that what is taken can be written again in one
// form, which means the same.
func FuzzParseConditions(f *testing.F) {
	f.Add("ip saddr != 10.0.0.0/8", false)
	f.Add(`ip6 daddr { fd00::/8, ::1 } meta iifname "eth*"`, true)
	f.Add("mark and 0xff == 0x1 mark != 3/3", false)
	f.Add("iifname { a, b , } saddr{1.2.3.4}", false)
	f.Fuzz(func(t *testing.T, text string, v6 bool) {
		of := &ipv4
		if v6 {
			of = &ipv6
		}
		c, err := parseConditions("key", strings.Split(text, " "), of)
		if err != nil {
			var shown *types.Error
			if !errors.As(err, &shown) || shown.Details == "" {
				t.Errorf("%q: %v has no remedy", text, err)
			}
			return
		}
		again, err := parseConditions("key", []string{c.String()}, of)
		if err != nil || again.id != c.id || again.String() != c.String() {
			t.Errorf("%q is %q, and that is %q, %v", text, c, again, err)
		}
		for _, chain := range c.chains(of, "x", nil) {
			if len(chain.Rules) > maxValues {
				t.Errorf("%q: chain %s has %d rules", text, chain.Name, len(chain.Rules))
			}
		}
	})
}
