package bench

import (
	"io/fs"
	"os"
	"testing"

	"github.com/cnibox/cnibox/plugins"
	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// disk measures how large all plugins are.
func (r *runner) disk(b *testing.B, scenario string) {
	add := func(implementation string, plugins, files int, size int64) {
		point := func(metric string) report.Point {
			return report.Point{Scenario: scenario, Case: "all plugins", Plugins: implementation, Metric: metric}
		}
		r.results.Add(point("plugins"), "", float64(plugins))
		r.results.Add(point("files"), "", float64(files))
		r.results.Add(point("size"), "bytes", float64(size))
	}
	for _, i := range choose(report.Reference, report.Debian, report.Cnibox) {
		switch i.name {
		case report.Reference:
			if r.profile.disk {
				n, size := measureFiles(b, allReference(b))
				add(i.name, n, n, size)
			}
		case report.Debian:
			n, size := measureFiles(b, netlab.Debian(b))
			add(i.name, n, n, size)
		case report.Cnibox:
			file, err := os.Stat(netlab.Cnibox(b))
			if err != nil {
				b.Fatal(err)
			}
			add(i.name, len(plugins.All), 1, file.Size())
		}
	}
}

// allReference builds all reference plugins the way cnibox is built and returns their directory.
func allReference(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	goBuild(b, "reference", dir+"/", "tool")
	return dir
}

// measureFiles returns how many files a directory has and the sum of their sizes.
func measureFiles(b *testing.B, dir string) (n int, size int64) {
	b.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		n++
		size += info.Size()
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return n, size
}
