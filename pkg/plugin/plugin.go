// Package plugin is the contract between a CNI plugin and whatever runs it: a process started by a runtime, another plugin, or a Go test.
//
// A plugin gets a Request and answers with a Result or an error. It never reads the environment, prints, exits or keeps package-level
// state.
package plugin

import (
	"context"
	"errors"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/netns"
)

// Plugin has the verbs of CNI that every plugin answers (spec 1.1.0, section "CNI operations"). GC is served by what a Holder holds, or by
// a Collector.
type Plugin interface {
	// Add makes the attachment. When it fails it has undone what it did.
	Add(ctx context.Context, r *Request) (*types100.Result, error)

	// Del removes what Add made. It works from the request's Key alone: everything else is a hint. A missing thing is success;
	// what could not be removed is one error after every other step was tried.
	Del(ctx context.Context, r *Request) error

	// Mend looks at what Add has made, each thing once, in the order in which Add makes it, and tells the mender what is not as the request's
	// PrevResult and configuration have it, and how that is mended. Things that are right stay: no connection is cut, no link is made anew, and
	// nothing is taken from another attachment. An error is what keeps it from going on.
	Mend(ctx context.Context, r *Request, m *Mender) error

	// Status reports whether an Add could be served now. A plugin that needs nothing of the host answers nil.
	Status(ctx context.Context, r *Request) error
}

// Configured is a plugin that says what it reads of a configuration. All of cnibox's do.
type Configured interface {
	// Keys are the keys that Parse reads.
	Keys() keys.Set

	// Parse reads and validates a configuration as ADD does first, and returns what is wrong with it: a *conf.Error where a key is to
	// blame. It looks at nothing but the request. With the command STATUS what comes with each ADD may be missing.
	Parse(r *Request) error
}

// Explainer is a plugin that chooses how to do its work by what is on the host.
type Explainer interface {
	// Explain says what it would choose for a configuration, and why: a sentence for each choice. It changes nothing.
	Explain(config *conf.Object) []string
}

// RepairRemedy is what to do about what a CHECK finds missing.
const RepairRemedy = "`cnictl repair` puts it back on the host, and inside if the network has \"repair\": \"all\"; where it can't, restart the container"

// ErrInTheWay says that the thing to repair is there, and something of others keeps it from working. The things after it can't be judged.
var ErrInTheWay = errors.New("something else is in the way")

// ErrLost says that the thing to repair is not there, or is another attachment's by now.
var ErrLost = errors.New("only a restart of the container can put it back")

// Descriptor is one row of the table of plugins.
type Descriptor struct {
	Name    string // what the link in /opt/cni/bin is called
	Kind    Kind
	Summary string // one line, for people
	Plugin  Plugin

	// Oldest is the oldest configuration version the plugin takes; "" is 0.1.0.
	Oldest string

	// Chained plugins change what one before them has made: ADD and CHECK need its result.
	Chained bool

	// ChecksWithoutResult is set for plugins whose CHECK does without the result of ADD.
	ChecksWithoutResult bool

	// Borrows is set for plugins whose link another program has made, which knows it best.
	Borrows bool

	// The facts that callers of an IPAM plugin have to know.
	NeedsLink             bool // ADD works through the container's interface
	ReleasesThroughLink   bool // so does DEL
	AddressesUniqueToNode bool // nobody else can have an address that it hands out
}

// Kind is where in a chain a plugin stands.
type Kind string

// The three kinds, called as in the CNI documentation.
const (
	Main Kind = "main" // makes an interface
	IPAM Kind = "ipam" // hands out addresses, called by a main plugin
	Meta Kind = "meta" // changes what a main plugin made
)

// Table is the plugins a binary holds.
type Table []Descriptor

// Find returns the plugin that people call by a name, nil if there is none. It is called by its own, or by one that ends in its own
// after a "-": buildkit-cni-bridge is bridge. Of several the longest counts.
func (t Table) Find(name string) (found *Descriptor) {
	for i := range t {
		before, ends := strings.CutSuffix(name, t[i].Name)
		if ends && (before == "" || strings.HasSuffix(before, "-")) && (found == nil || len(t[i].Name) > len(found.Name)) {
			found = &t[i]
		}
	}
	return found
}

// Names returns the plugins' own names.
func (t Table) Names() (names []string) {
	for _, row := range t {
		names = append(names, row.Name)
	}
	return names
}

// Command is a CNI verb, spelled as in CNI_COMMAND.
type Command string

// The verbs of CNI 1.1.0.
const (
	Add     Command = "ADD"
	Del     Command = "DEL"
	Check   Command = "CHECK"
	Status  Command = "STATUS"
	GC      Command = "GC"
	Version Command = "VERSION"
)

// Request is one call of a plugin, validated.
type Request struct {
	Command Command
	Key     // only the network on STATUS and GC

	// Netns is the path of the container's network namespace, as the runtime gave it. On DEL it can be empty.
	Netns string

	// Pair is the host's namespace and what is at Netns. Nil is the host's alone.
	*netns.Pair

	Args    string   // CNI_ARGS, unparsed: see Arguments
	Path    []string // CNI_PATH, where delegates are looked for
	Results string   // the directory in which libcni keeps results; "" is not known
	Version string   // the configuration's cniVersion, "0.1.0" if it has none

	// Config is the whole configuration. It is strict on ADD, CHECK and STATUS and lenient on DEL and GC.
	Config *conf.Object

	// PrevResult is the previous plugin's result; on CHECK and DEL the whole chain's. It is nil when there is none and, on DEL,
	// when it can't be read. It is the plugin's own: ADD may change it into its result.
	PrevResult *types100.Result

	// Valid are the attachments that GC must leave alone. HasValid is false when the runtime sent no list, and then nothing may be removed.
	Valid    []Key
	HasValid bool

	// Plugins are the plugins that can be called in this process. InProcess has them called there whatever is in Path: that the file there
	// is this very binary need not be.
	Plugins   Table
	InProcess bool

	// HostSide has Mend look at what the host has of the attachment, and leave to the container what is in there.
	HostSide bool

	// Deleter, when set, deletes links.
	Deleter Deleter

	// Filter, when set, is what calls that look at the packet filter one after the other share: a *netfilter.Session.
	Filter any

	// Trace, when set, is told what the plugin is about to do.
	Trace func(step string)

	// Warn, when set, is told what a call that succeeds could not do.
	Warn func(text string)
}

// Deleter deletes links without a wait for the kernel to free their memory; pkg/process/detach has one.
type Deleter interface {
	// Start prepares for a Delete that comes later.
	Start()
	// Delete deletes a link of a namespace, nil is the host's, of which h has the links.
	Delete(h *netlink.Handle, namespace ns.NetNS, index int) error
}

// Announce tells whoever traces what comes next.
func (r *Request) Announce(step string) {
	if r.Trace != nil {
		r.Trace(step)
	}
}

// WarnOf warns of an error that a call goes on after, if it is one.
func (r *Request) WarnOf(err error) {
	if err != nil && r.Warn != nil {
		r.Warn(err.Error())
	}
}

// Step announces the next step, and stops a call that was cancelled: a plugin asks before each step of an ADD that changes something.
func (r *Request) Step(ctx context.Context, step string) error {
	r.Announce(step)
	if ctx.Err() == nil {
		return nil
	}
	remedy := context.Cause(ctx).Error() + "; the call can be repeated"
	if r.Command == Add {
		remedy = context.Cause(ctx).Error() + "; what was made is removed again, so the call can be repeated"
	}
	return types.NewError(types.ErrTryAgainLater, "stopped before the step: "+step, remedy)
}

// For returns a request of the same attachment for another verb: a DEL, when an ADD fails.
func (r *Request) For(command Command) *Request {
	own := *r
	own.Command = command
	if command == Del {
		own.Config = r.Config.Lenient()
	}
	return &own
}
