package node

import (
	"fmt"
	"strings"
)

// Limits are in bits a second; 0 is none.
type Limits struct {
	IngressRate uint64 `json:"ingressRate,omitempty"`
	EgressRate  uint64 `json:"egressRate,omitempty"`
}

// String says what the limits are.
func (l Limits) String() string {
	var parts []string
	if l.IngressRate != 0 {
		parts = append(parts, "receives at most "+bitRate(l.IngressRate))
	}
	if l.EgressRate != 0 {
		parts = append(parts, "sends at most "+bitRate(l.EgressRate))
	}
	return strings.Join(parts, ", ")
}

// bitRate writes bits per second.
func bitRate(rate uint64) string {
	for _, unit := range []struct {
		size uint64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if rate >= unit.size {
			return fmt.Sprintf("%g %sbit/s", float64(rate*100/unit.size)/100, unit.name)
		}
	}
	return fmt.Sprintf("%d bit/s", rate)
}
