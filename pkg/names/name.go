package names

import (
	"fmt"
	"strings"
)

// Limits of a name in DNS (RFC 1035, 2.3.4), without the dot at its end.
const longestLabel, longestName = 63, 253

// Validate returns what keeps a text from being a name in DNS. Labels have letters, digits, "-" and, since names of containers have it, "_".
func Validate(name string) error {
	if len(name) > longestName {
		return fmt.Errorf("it has %d bytes, and names in DNS have up to %d", len(name), longestName)
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > longestLabel {
			return fmt.Errorf("its part %q has %d bytes, and parts between dots have 1 to %d", label, len(label), longestLabel)
		}
		if i := strings.IndexFunc(label, isOther); i >= 0 {
			return fmt.Errorf("its part %q has something else than letters, digits, - and _", label)
		}
	}
	return nil
}

func isOther(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
}
