package netlab

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Crowd makes the Host's machine look as if it had 1,500 links: those of 500 attachments.
func (h *Host) Crowd(t testing.TB) {
	t.Helper()
	const links = "/sys/devices/virtual/net"
	err := h.do(func() error {
		if err := unix.Mount("links", links, "tmpfs", 0, ""); err != nil {
			return err
		}
		for i := range 1500 {
			if err := os.Mkdir(filepath.Join(links, strconv.Itoa(i)), 0o755); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal("netlab.Crowd: ", err)
	}
}
