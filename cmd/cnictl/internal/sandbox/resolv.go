package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

const resolvConfPath = "/etc/resolv.conf"

// ResolvConf returns what a result's DNS is as a resolv.conf(5), "" if it says nothing.
func ResolvConf(dns types.DNS) string {
	var b strings.Builder
	if dns.Domain != "" {
		fmt.Fprintf(&b, "domain %s\n", dns.Domain)
	}
	if len(dns.Search) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(dns.Search, " "))
	}
	for _, server := range dns.Nameservers {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if len(dns.Options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(dns.Options, " "))
	}
	return b.String()
}

// coverResolvConf mounts a file of the given content over /etc/resolv.conf, in a mount namespace that it makes for the calling
// thread, which must not be used for anything else.
func coverResolvConf(content string) error {
	file, err := os.CreateTemp("", "cnictl-resolv-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // the mount keeps the content
	_, err = file.WriteString(content)
	if err := errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace for %s: %w", resolvConfPath, err)
	}
	// Mounts made on the host later must be seen, our own must not leave.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts from the host: %w", err)
	}
	if err := unix.Mount(file.Name(), resolvConfPath, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount the network's name servers on %s (make the file if it is missing): %w", resolvConfPath, err)
	}
	return nil
}
