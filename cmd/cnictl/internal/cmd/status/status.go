// Package status answers whether the plugins of a network could serve an ADD: CNI STATUS by hand.
package status

import (
	"fmt"
	"io"

	"github.com/containernetworking/cni/libcni"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/known"
)

// networkStatus is what status prints with --json.
type networkStatus struct {
	Network    string         `json:"network"`
	CNIVersion string         `json:"cniVersion"`
	Asked      bool           `json:"asked"` // the version knows STATUS
	Ready      bool           `json:"ready"`
	Plugins    []pluginStatus `json:"plugins"`
}

type pluginStatus struct {
	Type  string            `json:"type"`
	Ready bool              `json:"ready"`
	Error *ui.ErrorDocument `json:"error,omitempty"`

	// Choices is how the plugin would do its work, and why so: "publishes ports with nftables: …".
	Choices []string `json:"choices,omitempty"`
}

func New() *cobra.Command {
	var node network.Node
	cmd := &cobra.Command{
		Use:   "status NETWORK",
		Short: "Ask a network's plugins whether they could serve an add (CNI STATUS)",
		Long: `Ask each plugin of a network whether it could serve an add now. The exit code is
1 if one could not. Networks older than CNI 1.1.0 can't be asked.
`,
		Example: "  cnictl status demo",
		Args:    ui.Arguments(1, 1),

		ValidArgsFunction: ui.CompleteNetworks,
		RunE:              func(cmd *cobra.Command, args []string) error { return status(cmd, node, args[0]) },
	}
	ui.NeedsRoot(cmd)
	ui.AddNodeFlags(cmd, &node.Options)
	ui.AddJSONFlag(cmd)
	return cmd
}

func status(cmd *cobra.Command, node network.Node, name string) error {
	list, err := node.Load(name)
	if err != nil {
		return err
	}
	s := &networkStatus{Network: name, CNIVersion: list.CNIVersion, Asked: network.HasVerbsOf110(list), Ready: true, Plugins: []pluginStatus{}}
	for i, p := range list.Plugins {
		if !s.Asked {
			break
		}
		asked := pluginStatus{Type: p.Network.Type, Ready: true, Choices: choices(p)}
		one := *list
		one.Plugins = list.Plugins[i : i+1]
		if err := node.CNI().GetStatusNetworkList(cmd.Context(), &one); err != nil {
			document := ui.NewErrorDocument(err)
			asked.Ready, asked.Error, s.Ready = false, &document, false
		}
		s.Plugins = append(s.Plugins, asked)
	}
	if err := ui.Output(cmd, s, s.describe); err != nil {
		return err
	}
	if !s.Ready {
		return ui.Failed
	}
	return nil
}

// choices asks our own plugin of that name, if it is one that chooses, how it would do its work on this host.
func choices(p *libcni.PluginConfig) []string {
	row := known.Plugins.Find(p.Network.Type)
	if row == nil {
		return nil
	}
	explainer, ok := row.Plugin.(plugin.Explainer)
	config, err := conf.Parse(p.Bytes)
	if !ok || err != nil {
		return nil
	}
	return explainer.Explain(config)
}

func (s *networkStatus) describe(w io.Writer) {
	if !s.Asked {
		fmt.Fprintf(w, "network %s has cniVersion %s, and plugins know STATUS since 1.1.0: none was asked\n", s.Network, s.CNIVersion)
		return
	}
	g := ui.NewGrid()
	for _, p := range s.Plugins {
		if p.Ready {
			g.Add(p.Type, ui.Good.Sprint("ready"))
			for _, c := range p.Choices {
				g.Add("", c)
			}
			continue
		}
		g.Add(p.Type, ui.Bad.Sprint("not ready")+fmt.Sprintf(": %s (code %d, %s)", p.Error.Msg, p.Error.Code, ui.CodeName(p.Error.Code)))
		if p.Error.Details != "" {
			g.Add("", p.Error.Details)
		}
	}
	g.Print(w)
}
