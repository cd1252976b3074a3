package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cnibox/cnibox/test/bench/report"
)

// started is a program whose start is measured.
type started struct {
	varied, implementation, path string
	wall, peak                   []float64
}

// start measures programs that do next to nothing, from start to end.
func (r *runner) start(b *testing.B, scenario string) {
	all := r.startedPrograms(b)
	for range r.profile.starts {
		for _, i := range r.random.Perm(len(all)) {
			s := all[i]
			cmd := exec.Command(s.path)
			cmd.Env = []string{"CNI_COMMAND=VERSION"}
			used, err := r.programs.launch(cmd)
			if err != nil {
				b.Fatal(err)
			}
			s.wall = append(s.wall, milliseconds(used.wall))
			s.peak = append(s.peak, used.peak)
		}
	}
	for _, s := range all {
		point := report.Point{Scenario: scenario, Case: s.varied, Plugins: s.implementation, Metric: "VERSION"}
		r.results.Add(point, "ms", s.wall...)
		point.Metric = "RSS"
		r.results.Add(point, "bytes", s.peak...)
	}
}

func (r *runner) startedPrograms(b *testing.B) []*started {
	b.Helper()
	all := []*started{
		{varied: "nothing", implementation: report.EmptyGo, path: r.programs.installed(b, r.programs.empty)},
		{varied: "nothing", implementation: report.NoOp, path: r.programs.installed(b, r.programs.noop)},
	}
	for _, i := range choose(report.Cnibox, report.Reference, report.Debian) {
		for _, plugin := range []string{"bridge", "host-local", "portmap"} {
			all = append(all, &started{varied: plugin, implementation: i.name, path: r.called(b, i, plugin)})
		}
	}
	return all
}

// called returns a path by which a plugin is called outside of a Host.
func (r *runner) called(b *testing.B, i implementation, plugin string) string {
	b.Helper()
	link := filepath.Join(b.TempDir(), plugin)
	if err := os.Symlink(r.programs.installed(b, i.program(b, r.programs, plugin)), link); err != nil {
		b.Fatal(err)
	}
	return link
}
