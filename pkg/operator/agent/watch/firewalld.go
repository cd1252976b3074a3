package watch

import (
	"context"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/cnibox/cnibox/pkg/netfilter/firewalld"
)

// answerTime is how long the bus may take to answer.
var answerTime = 2 * time.Second

// tryAgain is how long to wait until a bus that is not there is tried again.
var tryAgain = 15 * time.Second

// watchFirewalld hears from firewalld that it was reloaded, and from the bus that it was started. A node without a bus may get one.
func (w *Watch) watchFirewalld() error {
	f := follow(w.life)
	go func() {
		for {
			if f != nil {
				w.hear(f)
			}
			select {
			case <-time.After(tryAgain):
			case <-w.life.Done():
				return
			}
			if f = follow(w.life); f != nil && f.runs {
				w.hit("firewalld was started", "")
			}
		}
	}()
	return nil
}

// follower is a connection to the bus.
type follower struct {
	close   context.CancelFunc
	signals chan *dbus.Signal
	runs    bool // firewalld does
}

// follow connects to the bus, nil if there is none.
func follow(life context.Context) *follower {
	ctx, cancel := context.WithCancel(life)
	slow := time.AfterFunc(answerTime, cancel) // as when systemd holds the socket of a bus that is down
	conn, err := dbus.Connect(firewalld.BusAddress, dbus.WithContext(ctx))
	if err != nil {
		cancel()
		return nil
	}
	f := &follower{close: cancel, signals: make(chan *dbus.Signal, 16)}
	conn.Signal(f.signals)
	const bus = "org.freedesktop.DBus"
	reloaded := []dbus.MatchOption{dbus.WithMatchSender(firewalld.BusName), dbus.WithMatchInterface(firewalld.BusName), dbus.WithMatchMember("Reloaded")}
	started := []dbus.MatchOption{dbus.WithMatchSender(bus), dbus.WithMatchInterface(bus), dbus.WithMatchMember("NameOwnerChanged"),
		dbus.WithMatchArg(0, firewalld.BusName)}
	for _, match := range [][]dbus.MatchOption{reloaded, started} {
		if err == nil {
			err = conn.AddMatchSignal(match...)
		}
	}
	if err == nil {
		err = conn.BusObject().CallWithContext(ctx, bus+".NameHasOwner", dbus.FlagNoAutoStart, firewalld.BusName).Store(&f.runs)
	}
	if !slow.Stop() || err != nil {
		cancel() // which closes the connection
		return nil
	}
	return f
}

// hear listens until the connection ends.
func (w *Watch) hear(f *follower) {
	defer f.close()
	for s := range f.signals {
		if what := parseSignal(s); what != "" {
			w.hit(what, "")
		}
	}
}

// parseSignal returns what a signal tells, "" if it is nothing.
func parseSignal(s *dbus.Signal) string {
	switch {
	case s.Name == firewalld.BusName+".Reloaded":
		return "firewalld was reloaded"
	case s.Name == "org.freedesktop.DBus.NameOwnerChanged" && len(s.Body) == 3:
		name, _ := s.Body[0].(string)
		if owner, _ := s.Body[2].(string); name == firewalld.BusName && owner != "" {
			return "firewalld was started"
		}
	}
	return ""
}
