package ui

import (
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/operator/runtimes"
)

// FindRuntime returns what is known of a runtime on this node.
func FindRuntime(name string) (runtimes.Runtime, error) {
	if !slices.Contains(runtimes.Names(), name) {
		return runtimes.Runtime{}, Usagef("--for %s: it is one of %s", name, strings.Join(runtimes.Names(), ", "))
	}
	processes, err := new(node.Host).Processes()
	if err != nil {
		return runtimes.Runtime{}, err
	}
	return runtimes.Find(name, runtimes.Options{Processes: processes})
}
