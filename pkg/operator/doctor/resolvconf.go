package doctor

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/result"
)

var namesNotAsked = codes.Declare(finding.Code{Name: "names-not-asked", Severity: finding.Info,
	Meaning: "A container asks other DNS servers than the gateway: it finds no containers by name.",
	Remedy:  "the runtime's own choice of servers left out, such as `--dns` of podman"})

// checkResolvConf looks whom containers with names ask. The file is in the container's hands, and so may be on a file system that never answers.
func checkResolvConf(ctx context.Context, s *subject) (list []Finding, err error) {
	const patience = time.Second
	records, err := names.List(names.Called)
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	seen := make(chan Finding)
	go func() {
		defer close(seen)
		for _, r := range records {
			if f := s.asksOthers(r); f != nil {
				select {
				case seen <- *f:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	for {
		select {
		case f, more := <-seen:
			if !more {
				return list, err
			}
			list = append(list, f)
		case <-ctx.Done():
			return list, err
		}
	}
}

// asksOthers returns what is found of a container whose file of servers has none that answers for names.
func (s *subject) asksOthers(r *names.Record) *Finding {
	a := s.Attachment(r.Key)
	if a == nil || a.Namespace == nil || a.Namespace.PID == 0 {
		return nil
	}
	text, err := readInRoot(a.Namespace.PID, "etc/resolv.conf")
	servers := result.ParseResolvConf(text).Nameservers
	isGateway := func(text string) bool {
		server, err := netip.ParseAddr(text)
		return err == nil && slices.Contains(r.Gateways, server)
	}
	if err != nil || slices.ContainsFunc(servers, isGateway) {
		return nil
	}
	f := found(namesNotAsked, r.Network, finding.Say("start it without DNS servers of its own"), "%s has other DNS servers than %s in its resolv.conf, and finds no containers by name", r.Key, r.Gateways)
	return &f
}

// readInRoot reads a regular file as a process sees it. Links lead nowhere else than in the process's root (openat2(2), since Linux 5.6).
func readInRoot(pid int, path string) (string, error) {
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil || is.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", unix.EINVAL
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	const most = 64 << 10
	text, err := io.ReadAll(io.LimitReader(f, most))
	return string(text), err
}
