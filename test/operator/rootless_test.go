package operator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestRootless: an ordinary user's cnictl, in a user namespace with the /proc of a machine with other users' processes, tells containers that run from those
// that are gone.
func TestRootless(t *testing.T) {
	t.Parallel()
	host, _ := node(t)
	dir := t.TempDir()
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/demo.conflist", []byte(demo), 0o644); err != nil {
		t.Fatal(err)
	}
	script := `export PATH=` + filepath.Dir(netlab.Cnictl(t)) + `:$PATH
		mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib; mkdir /run/netns; ip link set lo up
		cnictl install --dir /run/bin
		for name in runs ended; do
			ip netns add $name
			cnictl add demo /run/netns/$name --id $name --conf-dir ` + dir + ` --bin-dir /run/bin
		done
		ip netns del ended
		until [ "$(ip -o link show type veth | wc -l)" = 1 ]; do :; done # the kernel takes its time
		cnictl show --conf-dir ` + dir
	// The shell around it is the same user's, and outside of the namespace.
	printed := host.MustRun(t, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-ec", `unshare --user --map-root-user --net --mount sh -ec "$0"; :`, script)
	if !strings.Contains(printed, "2 attachments, 1 alive, 1 gone") || strings.Contains(printed, "note:") {
		t.Errorf("it prints\n%s", printed)
	}
}
