package newnet

import (
	"regexp"
	"strconv"
)

var rate = regexp.MustCompile(`^([0-9]{1,6})(kbit|mbit|gbit)$`)

// ParseRate reads a number of bits a second, as tc writes it.
func ParseRate(text string) (int64, error) {
	const least, most = 64_000, 32_000_000_000
	if m := rate.FindStringSubmatch(text); m != nil {
		n, _ := strconv.ParseInt(m[1], 10, 64) // 6 digits
		n *= map[string]int64{"kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}[m[2]]
		if least <= n && n <= most {
			return n, nil
		}
	}
	return 0, Wrongf("--limit %s: write a number with kbit, mbit or gbit, from 64kbit to 32gbit, such as 100mbit", text)
}
