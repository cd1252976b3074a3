package runtimes

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestPodmanMany starts 50 containers at once, and removes them at once.
func TestPodmanMany(t *testing.T) {
	tried(t, podman, fifty)
	p := newPodmanNode(t)
	const count = 50
	name := func(i int) string { return fmt.Sprint("many-", i) }
	port := func(i int) string { return fmt.Sprint(9000 + i) }
	atOnce(t, count, func(i int) error {
		_, err := p.Output(exec.Command("podman", podmanRunArgs(name(i), "--publish", port(i)+":80")...))
		return err
	})
	var names []string
	for i := range count {
		names = append(names, name(i))
	}
	addresses := p.podmanAddresses(t, names...)
	for _, address := range addresses {
		p.awaitPage(t, address)
	}
	slices.Sort(addresses)
	if got := len(slices.Compact(addresses)); got != count {
		t.Errorf("%d containers have %d addresses: %q", count, got, addresses)
	}
	atOnce(t, count, func(i int) error {
		_, err := fetch(p.outside.Namespace, netlab.HostIPv4+":"+port(i), netlab.Patience)
		return err
	})
	atOnce(t, count, func(i int) error {
		_, err := p.Output(exec.Command("podman", "rm", "--force", "--time", "0", name(i)))
		return err
	})
	p.checkUnpublished(t, port(0))
	p.checkNothingLeft(t)
}

// atOnce does something count times at once. An error ends the test.
func atOnce(t *testing.T, count int, do func(i int) error) {
	t.Helper()
	errs := make([]error, count)
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
