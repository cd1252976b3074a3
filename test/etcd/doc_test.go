// Package etcd tries the IPAM plugin etcd on hosts of their own on one LAN, each with a member of a real etcd cluster.
//
//	go test ./test/etcd -args -long
package etcd

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/cnibox/cnibox/test/crash/tracer"
	"github.com/cnibox/cnibox/test/netlab"
)

var (
	longFlag   = flag.Bool("long", false, "as much as the promises are about, rather than what shows that the tests work")
	reportFlag = flag.String("report", "", "a file for the table of failures (TestFailures) or of times (BenchmarkAdd), in Markdown")
)

// atEnv has the number of the call at which the plugin in the arguments is to be killed.
const atEnv = "ETCD_KILL_AT"

func TestMain(m *testing.M) {
	if at, err := strconv.Atoi(os.Getenv(atEnv)); err == nil {
		os.Exit(tracer.Run(at, os.Args[1], os.Args[2:]...))
	}
	netlab.Main(m)
}

// long returns one of two numbers.
func long(usual, ifLong int) int {
	if *longFlag {
		return ifLong
	}
	return usual
}
