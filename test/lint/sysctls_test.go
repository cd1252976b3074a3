package lint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/operator/lint"
)

// TestHostSysctls asks the kernel whether another network namespace can set them.
func TestHostSysctls(t *testing.T) {
	canSet := func(key string) bool {
		f, err := os.OpenFile(filepath.Join("/proc/sys", key), os.O_WRONLY, 0)
		if err == nil {
			_ = f.Close()
		}
		return err == nil
	}
	err := netns.InNew(func() error {
		for _, key := range lint.HostSysctls {
			if canSet(key) {
				t.Errorf("%s can be set there", key)
			}
		}
		if !canSet("net/core/somaxconn") {
			t.Error("nothing can be set there")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
