package calllog

import "strings"

// parseTraceparent returns the ids of a W3C trace context (https://www.w3.org/TR/trace-context/), none of a text that is not exactly one.
// Versions to come may have more fields.
func parseTraceparent(text string) (traceID, spanID string) {
	f := strings.Split(text, "-")
	if len(f) < 4 || f[0] == "ff" || f[0] == "00" && len(f) > 4 || !isHex(f[0], 2) || !isHex(f[1], 32) || !isHex(f[2], 16) || !isHex(f[3], 2) {
		return "", ""
	}
	if strings.Trim(f[1], "0") == "" || strings.Trim(f[2], "0") == "" {
		return "", ""
	}
	return f[1], f[2]
}

func isHex(text string, digits int) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}
