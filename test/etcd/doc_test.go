// Package etcd tries the IPAM plugin etcd on hosts of their own on one LAN, each with a member of a real etcd cluster.
//
//	go test ./test/etcd -args -long
package etcd

import (
	"flag"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

var (
	longFlag   = flag.Bool("long", false, "as much as the promises are about, rather than what shows that the tests work")
	reportFlag = flag.String("report", "", "a file for the table of failures (TestFailures) or of times (BenchmarkAdd), in Markdown")
)

func TestMain(m *testing.M) { netlab.Main(m) }

// long returns one of two numbers.
func long(usual, ifLong int) int {
	if *longFlag {
		return ifLong
	}
	return usual
}
