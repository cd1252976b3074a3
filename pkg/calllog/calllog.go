// Package calllog is the log of what container runtimes ask of the plugins: one line for each call, in a file of bounded size that only root
// can read. It is off until its file is there, and a call never fails or waits because of it.
package calllog

import (
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Dir is where the log is.
const Dir = "/var/log/cnibox"

// Call is one call of a plugin's process. Calls that plugins of the same process make to each other are steps of it.
type Call struct {
	Time   time.Time // when it began
	Took   time.Duration
	Verb   string
	Plugin string
	plugin.Key
	Netns string
	Pod   string // namespace/name, of Kubernetes
	PID   int

	// The things that an ADD that succeeded has made, by its result: addresses with their prefix length, and links of the host and the container.
	Addresses  []string
	Interfaces []Interface

	Error *types.Error // nil if the call succeeded

	// The ids of the runtime's TRACEPARENT, if it has set one.
	TraceID, SpanID string

	Steps []Step
}

// Interface is one of an ADD's result.
type Interface struct {
	Name    string
	MAC     string
	Sandbox string // "" is the host
}

// Step is what the plugin began to do, and how long after the call's begin.
type Step struct {
	At   time.Duration
	Text string
}

// maxLine is in bytes. It is written at once, so that lines of calls at the same time do not mix.
const maxLine = 4096

// line returns the call as a line of the log. Texts and lists that are too long for one are cut.
func (c *Call) line() []byte {
	for most := 1024; ; most /= 2 {
		if line := append(c.object(most).JSON(), '\n'); len(line) <= maxLine {
			return line
		}
	}
}

// MarshalJSON returns the call as it stands in the log.
func (c Call) MarshalJSON() ([]byte, error) { return c.object(1 << 20).JSON(), nil }

// timeForm is RFC 3339 in UTC, in one length.
const timeForm = "2006-01-02T15:04:05.000000Z"

// object returns the call as JSON, with texts of some bytes at most and lists to match.
func (c *Call) object(most int) *conf.Object {
	o := conf.New()
	o.Set("time", c.Time.UTC().Format(timeForm))
	o.Set("verb", shorten(c.Verb, most))
	o.Set("plugin", c.Plugin)
	plugin.Key{Network: shorten(c.Network, most), ContainerID: shorten(c.ContainerID, most), IfName: shorten(c.IfName, most)}.SetIn(o)
	o.Set("netns", shorten(c.Netns, most))
	o.Set("pod", shorten(c.Pod, most))
	o.Set("pid", c.PID)
	took := int(c.Took.Microseconds())
	o.Set("durationUs", &took)
	o.Set("addresses", c.Addresses[:min(len(c.Addresses), most/32)])
	var interfaces []*conf.Object
	for _, i := range c.Interfaces[:min(len(c.Interfaces), most/32)] {
		e := conf.New()
		e.Set("name", shorten(i.Name, most/4))
		e.Set("mac", shorten(i.MAC, most/4))
		e.Set("sandbox", shorten(i.Sandbox, most/4))
		interfaces = append(interfaces, e)
	}
	o.Set("interfaces", interfaces)
	if c.Error != nil {
		e, code := conf.New(), int(c.Error.Code)
		e.Set("code", &code)
		e.Set("msg", shorten(c.Error.Msg, most))
		e.Set("details", shorten(c.Error.Details, most/2))
		o.Set("error", e)
	}
	o.Set("traceID", c.TraceID)
	o.Set("spanID", c.SpanID)
	var steps []*conf.Object
	for _, s := range c.Steps[:min(len(c.Steps), most/32)] {
		e, at := conf.New(), int(s.At.Microseconds())
		e.Set("atUs", &at)
		e.Set("step", shorten(s.Text, most/8))
		steps = append(steps, e)
	}
	o.Set("steps", steps)
	return o
}

// parse returns the call of a line, if it is one.
func parse(line []byte) (c Call, ok bool) {
	o, err := conf.Parse(line)
	if err != nil {
		return c, false
	}
	var began string
	o.String("time", &began)
	if c.Time, err = time.Parse(time.RFC3339, began); err != nil {
		return c, false
	}
	o.String("verb", &c.Verb)
	o.String("plugin", &c.Plugin)
	c.Key = plugin.KeyIn(o)
	o.String("netns", &c.Netns)
	o.String("pod", &c.Pod)
	o.Int("pid", &c.PID)
	c.Took = microseconds(o, "durationUs")
	o.Strings("addresses", &c.Addresses)
	o.Objects("interfaces", func(e *conf.Object) {
		i := Interface{}
		e.String("name", &i.Name)
		e.String("mac", &i.MAC)
		e.String("sandbox", &i.Sandbox)
		c.Interfaces = append(c.Interfaces, i)
	})
	if o.Has("error") {
		e, code := o.Object("error"), 0
		e.Int("code", &code)
		c.Error = &types.Error{Code: uint(max(code, 0))}
		e.String("msg", &c.Error.Msg)
		e.String("details", &c.Error.Details)
	}
	o.String("traceID", &c.TraceID)
	o.String("spanID", &c.SpanID)
	o.Objects("steps", func(e *conf.Object) {
		s := Step{At: microseconds(e, "atUs")}
		e.String("step", &s.Text)
		c.Steps = append(c.Steps, s)
	})
	return c, c.Verb != "" && c.Plugin != ""
}

func microseconds(o *conf.Object, key string) time.Duration {
	n := 0
	o.Int(key, &n)
	return time.Duration(n) * time.Microsecond
}

// shorten shortens a text to so many bytes of it, and whole characters.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
