// Package box is the process side of CNI (spec 1.1.0, section 2): environment and standard input in, one JSON document out. It
// validates a call before the plugin sees it and guards what the plugin does with it.
package box

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
)

// Version is the version of this release.
const Version = "0.1.0"

// PluginsVersion is what each plugin calls itself: the version of the reference plugins it stands for, since programs compare it
// (nerdctl wants firewall to be at least 1.0.0), with ours as build metadata.
const PluginsVersion = "1.9.1+cnibox." + Version

// Says is what each plugin says about itself, before its version. Both are one text of the program, so that the version can be read from its file.
const Says = "CNI %s plugin "

// Box is one multicall binary.
type Box struct {
	Plugins plugin.Table
	Help    string // what the binary is for, shown when it is called by its own name
	Log     string // the directory of the log of calls (pkg/calllog); "" is none
}

// Process is the part of a process that Box uses, so that a test can be one.
type Process struct {
	Args   []string // Args[0] is the name the process was called by
	Getenv func(string) string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// OS returns this very process.
func OS() Process {
	return Process{Args: os.Args, Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
}

// Main runs the plugin that the process is called by, and returns the exit code. `bridge` and `cnibox bridge` are the same.
func (b *Box) Main(p Process) int {
	name, row := b.find(p.Args)
	called := p.Getenv("CNI_COMMAND") != ""
	switch {
	case row != nil && called:
		return b.call(p, row)
	case row != nil:
		b.about(p, row)
		return 0
	case called:
		return exitCode(fail(p, plugin.CurrentVersion, b.unknown(name)))
	case len(p.Args) > 1 && !strings.HasPrefix(name, "-"):
		fmt.Fprintln(p.Stderr, b.unknown(name))
		return 1
	default:
		b.help(p)
		return 0
	}
}

// find returns the plugin that the arguments name, and which of them names it.
func (b *Box) find(args []string) (name string, row *plugin.Descriptor) {
	if len(args) == 0 { // execve(2) allows it
		return "", nil
	}
	name = filepath.Base(args[0])
	row = b.Plugins.Find(name)
	if row == nil && len(args) > 1 {
		name = args[1]
		row = b.Plugins.Find(name)
	}
	return name, row
}

// about answers a call by a person or a runtime that wants to know the version (nerdctl parses the first line of the firewall
// plugin).
func (b *Box) about(p Process, row *plugin.Descriptor) {
	fmt.Fprintf(p.Stderr, Says+"v"+PluginsVersion+"\n", row.Name)
	fmt.Fprintf(p.Stderr, "CNI protocol versions supported: %s\n", strings.Join(plugin.Versions(row.Oldest), ", "))
	fmt.Fprintf(p.Stderr, "\n%s: %s\n", row.Name, row.Summary)
	fmt.Fprintf(p.Stderr, "A container runtime calls this program (https://www.cni.dev/docs/spec/): CNI_COMMAND is not set.\n")
}

func (b *Box) help(p Process) {
	fmt.Fprintf(p.Stdout, "cnibox v%s\n%s\n\nPlugins:\n", Version, b.Help)
	for _, row := range b.Plugins {
		fmt.Fprintf(p.Stdout, "  %-12s %-5s %s\n", row.Name, row.Kind, row.Summary)
	}
}

func (b *Box) unknown(name string) *types.Error {
	return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("cnibox has no plugin called %q", name),
		`call it by the name of one of its plugins, or by one that ends in "-" and such a name: `+strings.Join(b.Plugins.Names(), ", "))
}

// fail prints err as the one document of the call, and returns it.
func fail(p Process, version string, err error) error {
	_, _ = p.Stdout.Write(result.PrintError(plugin.AsError(err), version))
	return err
}
