package box

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/calllog"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// TestLog has lines of what no operator can bring about at will (those are in the scripts of test/operator), and none of a STATUS that is well.
func TestLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if err := calllog.On(dir, calllog.DefaultSize); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		command string
		traced  string
		unheard bool
		do      func(context.Context, *plugin.Request) error
		want    string // of the line
	}{
		{command: "ADD", traced: "1", do: func(ctx context.Context, r *plugin.Request) error {
			r.Warn("the MTU stays")
			return r.Step(ctx, "make the link")
		},
			want: "ADD net/c0ffee/eth0: warning: the MTU stays, make the link"},
		{command: "STATUS", do: func(context.Context, *plugin.Request) error { return errors.New("no luck") }, want: "STATUS net//: no luck"},
		{command: "STATUS"}, {command: "VERSION"},
		{command: "ADD", unheard: true, want: "ADD net/c0ffee/eth0: write the answer to standard output: no space left on device"},
		{command: "ADD", unheard: true, want: "ADD net/c0ffee/eth0: write the answer to standard output: no space left on device; take back what was made: the link stays",
			do: func(_ context.Context, r *plugin.Request) error {
				if r.Command == plugin.Del {
					return errors.New("the link stays")
				}
				return nil
			}},
		{command: "CHECK", want: "CHECK net/c0ffee/eth0: required prevResult missing"},
		{command: "ATTACH", want: "ATTACH //: unknown CNI_COMMAND: ATTACH"},
	} {
		before, _, _ := calllog.Read(dir)
		r := prepare(t, tt.command, config)
		r.env["CNIBOX_TRACE"] = tt.traced
		r.plugin.do, r.log = tt.do, dir
		if tt.unheard {
			r.answer = fullDisk{}
		}
		r.main()
		all, torn, err := calllog.Read(dir)
		if err != nil || torn > 0 {
			t.Fatal(torn, err)
		}
		got := ""
		for _, c := range all[len(before):] {
			var says []string
			for _, s := range c.Steps {
				says = append(says, s.Text)
			}
			if c.Error != nil {
				says = append(says, c.Error.Msg)
			}
			got += c.Verb + " " + strings.Join([]string{c.Network, c.ContainerID, c.IfName}, "/") + ": " + strings.Join(says, ", ")
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.command, got, tt.want)
		}
	}
}
