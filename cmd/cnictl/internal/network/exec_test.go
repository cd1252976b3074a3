package network

import (
	"slices"
	"strings"
	"testing"
)

// Plugins look into the cache of the node that they are called for.
func TestPluginsKnowTheCache(t *testing.T) {
	e := &pluginExec{cacheDir: "/run/cache"}
	out, err := e.ExecPlugin(t.Context(), "/usr/bin/env", nil, []string{"CNI_COMMAND=ADD"})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, []string{"CNI_COMMAND=ADD", "CNIBOX_CACHE_DIR=/run/cache"}) {
		t.Errorf("environment %q", got)
	}
}
