package bench

import (
	"flag"
	"fmt"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

var (
	reportDir = flag.String("report", "", "directory to write the report to; none is written without")
	rounds    = flag.Int("rounds", 0, "measure in so many rounds instead of the profile's number")
)

func TestMain(m *testing.M) { netlab.Main(m) }

// BenchmarkPlugins runs the scenarios, prints their tables and writes the report. How often it does things is for it to
// say: run it with -benchtime 1x.
func BenchmarkPlugins(b *testing.B) {
	profile := full
	if testing.Short() {
		profile = short
	}
	if *rounds > 0 {
		profile.rounds, profile.fewRounds = *rounds, min(profile.fewRounds, *rounds)
	}
	r := newRunner(b, profile)
	for _, s := range scenarios {
		b.Run(s.name, func(b *testing.B) {
			if b.N > 1 {
				return // it has been run, and was too fast for -benchtime
			}
			r.awaitQuiet()
			s.run(r, b, s.name)
			b.ReportMetric(0, "ns/op") // not shown: it would be the time of the whole scenario
		})
		// Not b.Log, which cuts long texts of benchmarks.
		if text := r.results.Section(s.name); text != "" {
			fmt.Printf("\n%s\n", text)
		}
	}
	if *reportDir == "" || b.Failed() {
		return
	}
	r.results.Facts = r.facts(b)
	if err := r.results.Write(*reportDir); err != nil {
		b.Fatal(err)
	}
}
