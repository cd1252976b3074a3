package bench

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

var (
	reportDir = flag.String("report", "", "directory to write the report to; none is written without")
	rounds    = flag.Int("rounds", 0, "measure in so many rounds instead of the profile's number")
	collected = flag.String("attachments", "", "measure GC, and Many, at these numbers of attachments, separated by commas, instead of the profile's")
)

func TestMain(m *testing.M) { netlab.Main(m) }

// BenchmarkPlugins runs the scenarios, prints their tables and writes the report. How often it does things is for it to
// say: run it with -benchtime 1x.
func BenchmarkPlugins(b *testing.B) {
	r := newRunner(b, chosenProfile(b))
	for _, s := range scenarios {
		r.run(b, s)
	}
	if *reportDir == "" || b.Failed() {
		return
	}
	r.results.Facts = r.facts(b)
	if err := r.results.Write(*reportDir); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkGC measures GC on a node with many attachments, which takes long to fill. It writes no report.
func BenchmarkGC(b *testing.B) {
	r := newRunner(b, chosenProfile(b))
	r.run(b, scenario{"gc", (*runner).gc})
	for _, f := range r.facts(b) {
		fmt.Printf("- %s: %s\n", f.Name, f.Value)
	}
}

// chosenProfile is the profile that the flags ask for.
func chosenProfile(b *testing.B) profile {
	profile := full
	if testing.Short() {
		profile = short
	}
	if *rounds > 0 {
		profile.rounds, profile.fewRounds = *rounds, min(profile.fewRounds, *rounds)
		profile.looks, profile.bursts = min(profile.looks, *rounds), min(profile.bursts, *rounds)
	}
	if *collected != "" {
		profile.collected, profile.many = nil, nil
		for text := range strings.SplitSeq(*collected, ",") {
			n, err := strconv.Atoi(text)
			if err != nil {
				b.Fatal("-attachments: ", err)
			}
			profile.collected, profile.many = append(profile.collected, n), append(profile.many, n)
		}
	}
	return profile
}

// run runs a scenario and prints its table.
func (r *runner) run(b *testing.B, s scenario) {
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
