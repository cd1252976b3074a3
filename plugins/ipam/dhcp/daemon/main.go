// Package daemon keeps the leases of containers: the program `dhcp daemon`. The plugin dhcp asks it for them.
package daemon

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/plugins/ipam/dhcp"
)

// settings are what the command line says.
type settings struct {
	socket, pidFile, prefix string
	broadcast               bool
	timeout                 time.Duration // a server has to answer, once it is known
	resendMax               time.Duration // the longest pause before a message is sent again
	resendTimeout           time.Duration // an ADD waits for a lease
}

// Serve is the daemon, and ends the process, if it was called so: `dhcp daemon`, or `cnibox dhcp daemon`, where dhcp is any name
// that stands for dhcp in the table.
func Serve(plugins plugin.Table) {
	isDHCP := func(path string) bool {
		row := plugins.Find(filepath.Base(path))
		return row != nil && row.Name == "dhcp"
	}
	args := os.Args
	if len(args) > 1 && !isDHCP(args[0]) {
		args = args[1:]
	}
	if len(args) < 2 || !isDHCP(args[0]) || args[1] != "daemon" {
		return
	}
	s, err := parse(args[2:])
	if err == nil {
		err = run(s)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "dhcp daemon:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// parse reads the flags, which are those of the reference plugin's daemon.
func parse(args []string) (*settings, error) {
	s, f := &settings{}, flag.NewFlagSet("dhcp daemon", flag.ContinueOnError)
	f.StringVar(&s.pidFile, "pidfile", "", "write the process id to this `path`")
	f.StringVar(&s.prefix, "hostprefix", "", "the host's root directory is at this `path`: it comes before that of the socket and of namespaces")
	f.StringVar(&s.socket, "socketpath", dhcp.DefaultSocket, "listen at this `path`, unless systemd does")
	f.BoolVar(&s.broadcast, "broadcast", false, "ask servers to broadcast their answers")
	f.DurationVar(&s.timeout, "timeout", 10*time.Second, "how long the server of a lease has to answer")
	f.DurationVar(&s.resendMax, "resendmax", 62*time.Second, "the longest pause before a message is sent again")
	f.DurationVar(&s.resendTimeout, "resendtimeout", 208*time.Second, "how long a lease is asked for")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q", f.Arg(0))
	case s.pidFile != "" && !filepath.IsAbs(s.pidFile):
		return nil, fmt.Errorf("-pidfile %q must be an absolute path", s.pidFile)
	case s.timeout <= 0 || s.resendMax <= 0 || s.resendTimeout <= 0:
		return nil, errors.New("-timeout, -resendmax and -resendtimeout must be longer than 0")
	}
	s.socket = s.prefix + s.socket
	return s, nil
}

// run serves until a signal ends it. Leases are kept: the next daemon takes them up.
func run(s *settings) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // who reads the log may end
	listener, err := passedSocket()
	if err != nil {
		return err
	}
	if listener != nil {
		s.socket = listener.Addr().String()
	} else if _, err := state.IsStale(s.socket); err != nil { // which is said at once, and not after a wait for the lock
		return err
	}
	d := &daemon{settings: s, dir: dhcp.DirOf(s.socket), leases: leases{}}
	lock, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Release() // when the socket is gone
	if listener == nil {
		if listener, err = state.Listen(s.socket); err != nil {
			return err
		}
	}
	defer listener.Close()
	if err := d.takeOver(ctx); err != nil {
		return err
	}
	if s.pidFile != "" {
		if err := state.Write(s.pidFile, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return err
		}
		defer os.Remove(s.pidFile)
	}
	log.Printf("listening at %s", s.socket)
	return d.serve(ctx, listener)
}

// passedSocket returns the socket that systemd passes (sd_listen_fds(3)), nil if it passes none. go-systemd's package for that links
// crypto/tls, which is 700 KB of cnibox.
func passedSocket() (net.Listener, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	if n := os.Getenv("LISTEN_FDS"); n != "1" {
		return nil, fmt.Errorf("systemd passes %s sockets, want one", n)
	}
	const first = 3
	unix.CloseOnExec(first)
	file := os.NewFile(first, "systemd's socket")
	defer file.Close()
	return net.FileListener(file)
}
