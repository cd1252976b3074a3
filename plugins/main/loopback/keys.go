package loopback

import (
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Keys implements plugin.Configured: there are none.
func (Plugin) Keys() keys.Set { return keys.Set{} }

// Parse implements plugin.Configured.
func (Plugin) Parse(*plugin.Request) error { return nil }
