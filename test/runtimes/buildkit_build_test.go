package runtimes

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// build is a build that runs, of steps that run at once.
type build struct {
	*buildKit
	cmd       *exec.Cmd
	steps     int
	printed   netlab.Printed
	addresses []string
}

// build builds an image with one step, from beginning to end, and returns what was printed.
func (b *buildKit) build(t *testing.T) string {
	t.Helper()
	build := b.begin(t, 1)
	build.await(t)
	build.end(t)
	return build.printed.String()
}

// begin begins to build an image. Each step asks a server outside, serves the page, and waits for a connection to port 81 to end it.
func (b *buildKit) begin(t *testing.T, steps int) *build {
	t.Helper()
	b.builds++
	dir := fmt.Sprint(workDir, "/context-", b.builds)
	server := b.outside.ServeTCP(t, netlab.OutsideIPv4+":0")
	b.writeFile(t, dir+"/index.html", pageBody)
	b.run(t, "cp", busybox, dir)
	file := `FROM scratch AS base
COPY busybox /bin/busybox
COPY index.html /www/index.html
SHELL ["/bin/busybox", "sh", "-c"]
`
	last := "FROM scratch\n"
	for i := range steps {
		file += fmt.Sprintf("FROM base AS step%d\nRUN : %d of build %d && echo hello | nc -w %v %s %d && echo somaxconn is `cat /proc/sys/net/core/somaxconn`"+
			" && httpd -p 80 -h /www && ip -4 -o address show scope global && nc -l -p 81 </dev/null >/done\n", i, i, b.builds, netlab.Patience.Seconds(), server.Addr(), server.Port())
		last += fmt.Sprintf("COPY --from=step%d /done /%d\n", i, i)
	}
	b.writeFile(t, dir+"/Dockerfile", file+last)
	begun := &build{buildKit: b, steps: steps,
		cmd: b.buildctl("build", "--progress", "plain", "--frontend", "dockerfile.v0", "--local", "context="+dir, "--local", "dockerfile="+dir)}
	begun.cmd.Stdout, begun.cmd.Stderr = &begun.printed, &begun.printed
	if err := b.Start(begun.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("buildctl build printed:\n%s", begun.printed.String())
		}
	})
	return begun
}

var stepAddress = regexp.MustCompile(`inet (10\.\d+\.0\.\d+)/24`)

// await waits until all steps run, and asks each for its page.
func (b *build) await(t *testing.T) {
	t.Helper()
	for i := range b.steps {
		netlab.Eventually(t, func() error {
			shown := stepAddress.FindAllStringSubmatch(b.printed.String(), -1)
			if len(shown) <= i {
				return fmt.Errorf("%d of %d steps run", len(shown), b.steps)
			}
			b.addresses = append(b.addresses, shown[i][1])
			return nil
		})
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(b.addresses))); len(distinct) != b.steps {
		t.Errorf("%d steps have %d addresses", b.steps, len(distinct))
	}
	for _, address := range b.addresses {
		b.awaitPage(t, address)
		checkPage(t, b.outside.Namespace, address+":80")
	}
}

// end lets the steps end, and waits for the build to.
func (b *build) end(t *testing.T) {
	t.Helper()
	for _, address := range b.addresses {
		netlab.Eventually(t, func() error {
			conn, err := b.DialContext(t.Context(), "tcp", address+":81")
			if err == nil {
				err = conn.Close()
			}
			return err
		})
	}
	if err := b.cmd.Wait(); err != nil {
		t.Errorf("the build has ended with %v", err)
	}
	if seen := strings.Count(b.printed.String(), "outside saw "+netlab.HostIPv4); seen != b.steps {
		t.Errorf("%d of %d steps were seen outside under the node's address", seen, b.steps)
	}
}
