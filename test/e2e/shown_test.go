package e2e

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
	"github.com/cnibox/cnibox/test/pagetest"
)

// shows runs what a page's section "Example" has in blocks marked console, on a node with the example's container, and compares what is
// printed.
func shows(t *testing.T, host *netlab.Host, page string) {
	t.Helper()
	_, section, _ := strings.Cut(page, "\n## Example\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(section, -1) {
		for _, example := range strings.Split("\n"+m[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(strings.TrimRight(example, "\n"), "\n")
			got, err := host.Output(exec.Command("sh", "-c", command))
			if err != nil {
				t.Errorf("$ %s\n%v", command, err)
			} else if !pagetest.LooksLike(got, want) {
				t.Errorf("$ %s\nprints\n%s\nand in the page is\n%s", command, got, want)
			}
		}
	}
}
