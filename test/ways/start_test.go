package ways

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"
)

// BenchmarkStart reports the median of how long a plugin takes to say its versions, by a stub, a link and a copy. They take turns, so that what else
// the machine does is in each.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	cmd := exec.Command("sh", "-euc", makeLayouts+"\nmake some --only bridge,host-local")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CNIBOX="+netlab.Cnibox(b), "CNICTL="+netlab.Cnictl(b))
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	took := map[string][]time.Duration{}
	for n := 0; b.Loop(); n++ {
		for turn := range layouts {
			layout := layouts[(n+turn)%len(layouts)]
			plugin := exec.Command(filepath.Join(dir, "some-"+layout, "bridge"))
			plugin.Env = []string{"CNI_COMMAND=VERSION"}
			start := time.Now()
			if err := plugin.Run(); err != nil {
				b.Fatal(err)
			}
			took[layout] = append(took[layout], time.Since(start))
		}
	}
	for layout, times := range took {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds()), layout+"-µs")
	}
}

// BenchmarkSize reports what all plugins take: the bytes of the files, and of a tar.gz of them.
func BenchmarkSize(b *testing.B) {
	h := netlab.NewHost(b)
	run(b, h, makeLayouts+"\nmake all")
	for b.Loop() {
		for _, layout := range layouts {
			var files, archive float64
			out := run(b, h, "find all-"+layout+" -type f -printf '%s\\n' | awk '{ sum += $1 } END { print sum }'; tar -C all-"+layout+" -cz . | wc -c")
			if _, err := fmt.Sscan(out, &files, &archive); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(files, layout+"-bytes")
			b.ReportMetric(archive, layout+"-tgz-bytes")
		}
	}
}
