package ui

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/pkg/operator/node"
)

// What `cnictl completion SHELL` makes a shell ask for. Answers come from files and links alone: no plugin is asked, and nothing is locked.

// Complete completes the values of a flag.
func Complete(cmd *cobra.Command, flag string, with cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, with) // fails if there is no such flag, which no command is worth failing for
}

// glance looks at the node as far as flags say where.
func glance(cmd *cobra.Command) *node.Node {
	o := node.Options{}
	if f := cmd.Flags().Lookup("conf-dir"); f != nil {
		o.ConfDir = f.Value.String()
	}
	if f := cmd.Flags().Lookup("cache-dir"); f != nil {
		o.CacheDirs = filepath.SplitList(f.Value.String())
	}
	return node.Read(cmd.Context(), o)
}

// CompleteNetworks completes a network, and nothing after it.
func CompleteNetworks(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var list []cobra.Completion
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, w := range glance(cmd).Networks {
		list = append(list, cobra.CompletionWithDesc(w.Name, strings.Join(w.Plugins, ", ")))
	}
	return Matching(list, begin)
}

// CompleteNetwork completes the value of a flag that is a network, whatever the arguments are.
func CompleteNetwork(cmd *cobra.Command, _ []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return CompleteNetworks(cmd, nil, begin)
}

// CompleteAttachment completes NETWORK [NETNS].
func CompleteAttachment(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return CompleteNetworks(cmd, args, begin)
	}
	var list []cobra.Completion
	for _, ns := range glance(cmd).Namespaces {
		list = append(list, ns.Paths...)
	}
	list, _ = Matching(list, begin)
	return list, cobra.ShellCompDirectiveDefault // it may be any file
}

// CompleteNames completes a container, by its id or pod, or anything else that show knows by name.
func CompleteNames(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	n := glance(cmd)
	list := completionsOf(n.Attachments)
	for _, a := range n.Attachments {
		for _, p := range a.Addresses {
			list = append(list, cobra.CompletionWithDesc(p.Addr().String(), a.Owner))
		}
	}
	for _, w := range n.Networks {
		list = append(list, cobra.CompletionWithDesc(w.Name, "network"))
	}
	for _, l := range n.Links() {
		list = append(list, cobra.CompletionWithDesc(l.Name, strings.Join(NonEmpty(l.Kind, l.Owner), " of ")))
	}
	return Matching(list, begin)
}

// CompleteIDs completes a flag with the whole ids of the containers that are attached to the network that is named, or to any.
func CompleteIDs(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var list []cobra.Completion
	for _, a := range glance(cmd).Attachments {
		if len(args) == 0 || a.Network == args[0] {
			list = append(list, cobra.CompletionWithDesc(a.ContainerID, strings.Join(NonEmpty(a.Pod, a.Network, AddressesOf(a, false)), " ")))
		}
	}
	return Matching(list, begin)
}

// CompleteInterfaces completes a flag with the names of the interfaces of the container that the arguments or --id name, or of all.
func CompleteInterfaces(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var list []cobra.Completion
	id, _ := cmd.Flags().GetString("id")
	for _, a := range glance(cmd).Attachments {
		if (id == "" || a.ContainerID == id) && (len(args) == 0 || a.Network == args[0] || strings.HasPrefix(a.ContainerID, args[0])) {
			list = append(list, a.IfName)
		}
	}
	return Matching(list, begin)
}

func completionsOf(attachments []*node.Attachment) (list []cobra.Completion) {
	short := ShortIDs(attachments)
	for _, a := range attachments {
		about := fmt.Sprintf("%s on %s %s", a.IfName, a.Network, AddressesOf(a, false))
		list = append(list, cobra.CompletionWithDesc(short[a.ContainerID], strings.Join(NonEmpty(a.Pod, about), ", ")))
		if a.Pod != "" {
			list = append(list, cobra.CompletionWithDesc(a.Pod, about))
		}
	}
	return list
}

// Matching returns what begins as was typed, each once and harmless for the shell that shows it.
func Matching(list []cobra.Completion, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var chosen []cobra.Completion
	for _, c := range list {
		name, about, _ := strings.Cut(c, "\t")
		if strings.HasPrefix(name, begin) && name == Harmless(name) && name != "" {
			chosen = append(chosen, cobra.CompletionWithDesc(name, Harmless(about)))
		}
	}
	slices.Sort(chosen)
	chosen = slices.CompactFunc(chosen, func(a, b cobra.Completion) bool {
		nameA, _, _ := strings.Cut(a, "\t")
		nameB, _, _ := strings.Cut(b, "\t")
		return nameA == nameB
	})
	return chosen, cobra.ShellCompDirectiveNoFileComp
}
