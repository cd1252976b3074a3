// Package presence says whether an attachment is alive, gone, replaced or not known, and why. It is the one judge of that: plugins, show, gc,
// release, repair, doctor and the agent ask it.
//
// These are the proofs. The first that applies counts:
//
//  1. The host end of its veth pair is there, by the name made from its key: it is alive. A veth pair ends with the namespace of either end.
//  2. ADD noted its namespace in an earlier boot: it is gone. Nothing outlives the boot.
//  3. ADD noted its namespace in this boot, and a namespace with that inode and cookie lives: it is alive, wherever that is by now: at its
//     path, with a process or a thread in it, or mounted in any mount namespace of our own user namespace.
//  4. That namespace lives nowhere: it is gone, or replaced if another namespace is at its path. If not all could be looked at, it is not known.
//     It is alive all the same if the interface is at the path, by its MAC address, that libcni's result reports: others note nothing.
//  5. There is no note, as of what other plugins have made: the path is what libcni's result says. Nothing is there, or the host's own
//     namespace: it is gone. The interface is in there that ADD reported: it is alive. Anything else is not known.
//
// No time is compared with the clock. An attachment that is gone by the last rule alone is only likely to be: those who free things look whether its
// addresses are in a namespace that lives (pkg/operator/node).
package presence

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// State is what an attachment is.
type State string

// The states.
const (
	Alive    State = "alive"    // its network namespace is there
	Gone     State = "gone"     // its network namespace is not there any more
	Replaced State = "replaced" // so, and another one is at its path
	Unknown  State = "unknown"  // neither is known
)

// IsOver reports whether an attachment has come to its end.
func (s State) IsOver() bool { return s == Gone || s == Replaced }

// Claim is an attachment, and what is known of it besides what the kernel says.
type Claim struct {
	plugin.Key
	HostEnd string // the name of its host end, which is there; "" if there is none
	At      string // the path of the namespace that the host end leads to, "" if it is not known
	Note    *Note  // nil if there is none that counts

	HasResult bool   // libcni has a result of it
	Netns     string // the path of its network namespace by that result, "" if it names none
	MAC       string // of its interface by that result
}

// Verdict says what an attachment is.
type Verdict struct {
	State     State
	Why       string     // for people
	Namespace *Namespace // nil if it is not there, or not looked for
	IsProven  bool       // it is gone by what ADD noted
}

// Spare returns the verdict about something for which there is a reason that it may be in use after all.
func (v Verdict) Spare(why string) Verdict { return Verdict{State: Unknown, Why: why} }

// Of judges an attachment.
func (h *Host) Of(c Claim) Verdict {
	switch {
	case c.HostEnd != "" && c.At != "":
		return Verdict{State: Alive, Why: "its network namespace " + c.At + " is there"}
	case c.HostEnd != "":
		return Verdict{State: Alive, Why: fmt.Sprintf("its link %s is there, and so its network namespace", c.HostEnd)}
	case c.Note != nil && (!c.HasResult || c.Netns == "" || c.Note.Netns == c.Netns):
		v := h.ofNoted(c.Note)
		if v.State.IsOver() && c.HasResult && c.MAC != "" && c.MAC != noMAC { // another suite's plugin may have made it again, and notes nothing
			if reported := h.ofReported(c); reported.State == Alive {
				return reported
			}
		}
		return v
	}
	v := h.ofReported(c)
	if c.Note == nil || !v.State.IsOver() {
		return v
	}
	if noted := h.ofNoted(c.Note); !noted.State.IsOver() { // a second ADD has failed, or others have made it again
		return noted
	}
	return v
}

func (h *Host) ofNoted(n *Note) Verdict {
	if n.Boot != h.Boot() {
		return Verdict{State: Gone, Why: "it was made before the last boot", IsProven: true}
	}
	found, err := h.find(n)
	switch {
	case err != nil:
		return Verdict{State: Unknown, Why: "its network namespace is not at " + n.Netns + ", and not all can be looked at: " + err.Error()}
	case found != nil && found.isAt(n.Netns):
		return Verdict{State: Alive, Why: "its network namespace " + n.Netns + " is there", Namespace: found}
	case found != nil:
		return Verdict{State: Alive, Why: fmt.Sprintf("its network namespace is there, at %s, though not at %s", found.Path(), n.Netns), Namespace: found}
	}
	switch at, isOwn, _ := h.At(n.Netns); {
	case isOwn:
		return Verdict{State: Gone, Why: "its network namespace is gone: the host's own is at " + n.Netns + " by now", IsProven: true}
	case at != nil:
		return Verdict{State: Replaced, Why: "its network namespace is gone: another one is at " + n.Netns + " by now", IsProven: true}
	}
	return Verdict{State: Gone, Why: "its network namespace " + n.Netns + " is gone", IsProven: true}
}

func (h *Host) ofReported(c Claim) Verdict {
	switch {
	case !c.HasResult:
		return Verdict{State: Unknown, Why: "it is not known whether it runs: libcni has no result of its last ADD, and nothing says where its network namespace is"}
	case c.Netns == "":
		return Verdict{State: Unknown, Why: "its result names no network namespace"}
	}
	at, isOwn, err := h.At(c.Netns)
	if err != nil {
		return Verdict{State: Unknown, Why: fmt.Sprintf("its network namespace %s can't be looked at: %v", c.Netns, err)}
	}
	if at == nil {
		if isHidden(c.Netns) {
			return Verdict{State: Unknown, Why: "the directory of its network namespace " + c.Netns + " can't be seen from here"}
		}
		return Verdict{State: Gone, Why: "its network namespace " + c.Netns + " is gone"}
	}
	has, err := at.has(c)
	switch {
	case err != nil:
		return Verdict{State: Unknown, Why: fmt.Sprintf("its network namespace %s can't be looked into: %v", c.Netns, err)}
	case has:
		return Verdict{State: Alive, Why: "its network namespace " + c.Netns + " is there", Namespace: at}
	case isOwn:
		return Verdict{State: Gone, Why: "its network namespace is gone: the host's own is at " + c.Netns + " by now"}
	}
	return Verdict{State: Unknown, Why: fmt.Sprintf("the network namespace %s does not have its interface %s, and may be another one by now", c.Netns, c.IfName)}
}

// isHidden reports whether the directory that a path is in can't be seen, so that nothing follows from the path. That of a process ends with
// the process.
func isHidden(path string) bool {
	_, err := os.Stat(filepath.Dir(path))
	return err != nil && !strings.HasPrefix(path, "/proc/")
}
