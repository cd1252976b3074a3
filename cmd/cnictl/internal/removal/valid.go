package removal

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/collect"
)

// ValidFlags name what is in use.
type ValidFlags struct {
	named []string
	file  string
}

// Add gives a command these flags.
func (f *ValidFlags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.named, "valid", nil, "an attachment that is in use, CONTAINER-ID/INTERFACE; repeatable")
	flags.StringVar(&f.file, "valid-from", "", "a file (- is standard input) with all attachments that are in use, one a line, or none: what no cache knows and it does not have is gone")
}

// Read returns what commands that remove something look at, and how.
func (f *ValidFlags) Read(cmd *cobra.Command, n network.Node) (o collect.Options, err error) {
	o = collect.Options{Options: n.Options, Exec: network.Exec, AllValid: f.file != ""}
	for _, text := range f.named {
		if o.Valid, err = appendValid(o.Valid, text, "--valid"); err != nil {
			return o, ui.Usagef("%w", err)
		}
	}
	if f.file == "" {
		return o, nil
	}
	text, err := readFile(cmd, f.file)
	if err != nil {
		return o, fmt.Errorf("read what is in use: %w", err)
	}
	lines := strings.Fields(string(text))
	switch {
	case len(lines) == 0: // such as what a program printed that has failed
		return o, ui.Usagef("--valid-from %s: the list is empty; if nothing is in use it has to say %q", f.file, none)
	case len(lines) == 1 && lines[0] == none:
		return o, nil
	}
	for _, line := range lines {
		if o.Valid, err = appendValid(o.Valid, line, "--valid-from "+f.file); err != nil {
			return o, ui.Usagef("%w", err)
		}
	}
	return o, nil
}

// none is the list of nothing.
const none = "none"

func readFile(cmd *cobra.Command, path string) ([]byte, error) {
	const longest = 64 << 20
	if path == "-" {
		return io.ReadAll(io.LimitReader(cmd.InOrStdin(), longest))
	}
	return os.ReadFile(path)
}

func appendValid(list []types.GCAttachment, text, from string) ([]types.GCAttachment, error) {
	id, ifName, _ := strings.Cut(text, "/")
	if id == "" || ifName == "" || strings.Contains(ifName, "/") {
		return nil, fmt.Errorf("%s: %q is not CONTAINER-ID/INTERFACE, such as 3f2a…/eth0", from, text)
	}
	return append(list, types.GCAttachment{ContainerID: id, IfName: ifName}), nil
}
