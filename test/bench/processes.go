package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cnibox/cnibox/plugins"
	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// start measures programs that do next to nothing, from start to end.
func (r *runner) start(b *testing.B, scenario string) {
	type program struct {
		varied, implementation, path string
	}
	all := []program{
		{"nothing", report.EmptyGo, r.programs.installed(b, r.programs.empty)},
		{"nothing", report.NoOp, r.programs.installed(b, r.programs.noop)},
	}
	for _, i := range choose(report.Cnibox, report.Reference, report.Debian) {
		for _, plugin := range []string{"bridge", "host-local", "portmap"} {
			link := filepath.Join(b.TempDir(), plugin)
			if err := os.Symlink(r.programs.installed(b, i.program(b, r.programs, plugin)), link); err != nil {
				b.Fatal(err)
			}
			all = append(all, program{plugin, i.name, link})
		}
	}
	wall, peak := make([][]float64, len(all)), make([][]float64, len(all))
	for range r.profile.starts {
		for _, i := range r.random.Perm(len(all)) {
			cmd := exec.Command(all[i].path)
			cmd.Env = []string{"CNI_COMMAND=VERSION"}
			used, err := r.programs.launch(cmd)
			if err != nil {
				b.Fatal(err)
			}
			wall[i], peak[i] = append(wall[i], milliseconds(used.wall)), append(peak[i], used.peak)
		}
	}
	for i, p := range all {
		r.results.Add(report.Point{Scenario: scenario, Case: p.varied, Plugins: p.implementation, Metric: "VERSION"}, "ms", wall[i]...)
		r.results.Add(report.Point{Scenario: scenario, Case: p.varied, Plugins: p.implementation, Metric: "RSS"}, "bytes", peak[i]...)
	}
}

// memory measures the largest process of each plugin's calls, and of a whole call of libcni.
func (r *runner) memory(b *testing.B, scenario string) {
	const largest = "largest"
	for _, s := range r.newSubjects(b, working, usual(hostLocal), "") {
		peaks := map[report.Point][]float64{}
		for _, pod := range r.makePods(b, s.Host, r.profile.fewRounds) {
			for _, verb := range batchVerbs {
				peak := map[string]float64{}
				run := func(cmd *exec.Cmd) error {
					plugin := filepath.Base(cmd.Path)
					used, err := r.programs.launch(cmd)
					peak[plugin], peak[largest] = used.peak, max(peak[largest], used.peak)
					return err
				}
				_, err := s.call(run, verb, s.conf(pod, measuredPort))
				if err == nil {
					err = reapOrphans()
				}
				if err != nil {
					b.Fatal(err)
				}
				for s.varied = range peak {
					peaks[s.point(scenario, verb)] = append(peaks[s.point(scenario, verb)], peak[s.varied])
				}
			}
		}
		for _, s.varied = range []string{"bridge", "tuning", "portmap", "chain", largest} {
			for _, verb := range batchVerbs {
				r.results.Add(s.point(scenario, verb), "bytes", peaks[s.point(scenario, verb)]...)
			}
		}
	}
}

// disk measures how large all plugins are.
func (r *runner) disk(b *testing.B, scenario string) {
	for _, i := range choose(report.Reference, report.Debian, report.Cnibox) {
		dir := b.TempDir()
		switch i.name {
		case report.Reference: // all of them, built the way cnibox is built
			if !r.profile.disk {
				continue
			}
			goBuild(b, "reference", dir+"/", "tool")
		case report.Debian:
			dir = netlab.Debian(b)
		case report.Cnibox:
			if err := os.Symlink(netlab.Cnibox(b), filepath.Join(dir, "cnibox")); err != nil {
				b.Fatal(err)
			}
		}
		files, err := filepath.Glob(dir + "/*")
		if err != nil {
			b.Fatal(err)
		}
		size, names := 0.0, len(files)
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				b.Fatal(err)
			}
			size += float64(info.Size())
		}
		if i.name == report.Cnibox {
			names = len(plugins.All)
		}
		s := subject{implementation: i, varied: "all plugins"}
		r.results.Add(s.point(scenario, "plugins"), "", float64(names))
		r.results.Add(s.point(scenario, "files"), "", float64(len(files)))
		r.results.Add(s.point(scenario, "size"), "bytes", size)
	}
}
