package bench

import "testing"

// BenchmarkNames measures ADD and DEL of a container without a name, and with one. Both take turns, in an order of chance, and what a name costs is the
// median of the differences within a round.
//
//	go test ./test/bench -run '^$' -bench Names -benchtime 1x
func BenchmarkNames(b *testing.B) {
	profile := chosenProfile(b)
	profile.rounds *= 2 // a name costs little
	r := newRunner(b, profile)
	alone := r.newPairedNode(b, "bridge", 0, nil)
	named := r.newPairedNode(b, "bridge and dnsname", 0, func(int) object { return object{"type": "dnsname", "domainName": "dns.podman"} })
	named.like = alone
	r.comparePairs(b, []*pairedNode{alone, named}, profile.rounds, 0)
}
