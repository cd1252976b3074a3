package plugins

import (
	"testing"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Each plugin says what it reads of a configuration.
func TestConfigured(t *testing.T) {
	for _, row := range All {
		if _, ok := row.Plugin.(plugin.Configured); !ok {
			t.Errorf("%s does not say which keys it reads", row.Name)
		}
	}
}
