package runtimes

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// The columns of docs/project/runtimes.md.
const (
	criNew    = "containerd 2.4, CRI"
	criOld    = "containerd 1.6, CRI"
	ctrNew    = "containerd 2.4, ctr"
	ctrOld    = "containerd 1.6, ctr"
	goCNI     = "go-cni 1.1"
	podman    = "podman 4.3"
	buildah   = "buildah 1.28"
	buildKitD = "BuildKit 0.34"
)

var columns = []string{criNew, criOld, ctrNew, ctrOld, goCNI, podman, buildah, buildKitD}

// The rows of docs/project/runtimes.md, each with what happens in it.
const (
	onePod        = "a container, and another"
	publishedPort = "published ports"
	twoNetworks   = "two networks"
	ownAddress    = "an address of one's own"
	dualStack     = "IPv4 and IPv6"
	findsOthers   = "names of containers"
	fifty         = "50 at once"
	runtimeKilled = "the runtime is killed"
	reboot        = "the node starts again"
	edited        = "the network is edited"
	asksStatus    = "STATUS"
)

var scenarios = []struct{ name, what string }{
	{onePod, "A container starts, reaches a server outside, serves a page, and is removed; then the same again. A published port, where the runtime can " +
		"publish one, answers from outside, from the node by its address, and by 127.0.0.1. After the removal nothing answers."},
	{publishedPort, "Ports are published on all of the node's addresses and on one of them. The page answers from outside, from the node by its address and by 127.0.0.1, " +
		"from another container, and from the container itself. A port that is in use is refused, with its owner's name."},
	{twoNetworks, "A container is attached to two networks, and reaches a server through each. Where the runtime publishes its port for both, the port answers."},
	{ownAddress, "A container gets the address, and the MAC address where the runtime can ask for one, that its user has chosen."},
	{dualStack, "A container has an address of both kinds. The page answers on both, and so does the published port, where the runtime can publish one."},
	{findsOthers, "Containers of a network find each other by name, and by the aliases that a user gives them, over IPv4 and IPv6; `cnictl agent --dns` answers. Containers of another network do not " +
		"find them, and nobody finds one that is removed."},
	{fifty, "50 containers start at once, each with an address of its own and, where the runtime can publish one, a port of its own. All answer, and all are removed at once."},
	{runtimeKilled, "The runtime is killed, where it runs all the time, or in the middle of a start and of a removal. It starts again, and removes what is left. " +
		"`cnictl gc` removes what a runtime has forgotten."},
	{reboot, "All processes and all that is in the kernel and in /run are gone, as after a power cut, and what is on disk is there. The runtime starts again, " +
		"starts a container with a port that was published before, and removes the old ones. No address is lost. ctr removes them without a DEL: there `cnictl gc` takes the addresses back."},
	{edited, "The network's file is edited, and then removed, while a container runs. The container is removed all the same, and nothing is left of it. " +
		"containerd's CRI calls DEL only for networks that have a file at the moment: there `cnictl gc` removes what is left, once another network has come."},
	{asksStatus, "The runtime asks for STATUS every few seconds. It is not ready without plugins, and ready with them. STATUS changes nothing on the node."},
}

// outcomesEnv names the file to which each test that is a cell of the page adds a line.
const outcomesEnv = "RUNTIMES_OUTCOMES"

// tried makes the test a cell of docs/project/runtimes.md: what came of it, and how long it took from here to the end of its clean-up.
// It comes first in a test, so that it sees what the rest of the clean-up finds.
func tried(t *testing.T, column, scenario string) {
	t.Helper()
	if !slices.Contains(columns, column) || !slices.ContainsFunc(scenarios, func(s struct{ name, what string }) bool { return s.name == scenario }) {
		t.Fatalf("%q of %q is not in rows_test.go", scenario, column)
	}
	begin := time.Now()
	t.Cleanup(func() {
		outcome := fmt.Sprintf("%.1f s", time.Since(begin).Seconds())
		if t.Failed() {
			outcome = "FAIL"
		}
		file, err := os.OpenFile(os.Getenv(outcomesEnv), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := fmt.Fprintf(file, "%s\t%s\t%s\n", scenario, column, outcome); err != nil {
			t.Error(err)
		}
	})
}
