// Package agent runs the agent, which repairs and collects as it happens, and says what it did.
package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/heap"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/network"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/agent"
	"github.com/cnibox/cnibox/pkg/operator/agent/resolver"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/node/containers"
	"github.com/cnibox/cnibox/pkg/operator/repair"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/server"
)

func New() *cobra.Command {
	var (
		where network.Node
		o     agent.Options
	)
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Put back what attachments lose as it happens, and remove what is left over",
		Long: `Watch this node until a signal ends it: put back within a second what a flush or
a reload takes from attachments, as "repair" does, and remove what is left of
containers that have ended, as "gc" does. Nothing depends on it: plugins do the
same with it and without. With --dns it also answers for the names that the plugin
dnsname gives containers.
`,
		Example: `  cnictl agent
  cnictl agent status`,
		Args: ui.Arguments(0, 0),
	}
	ui.NeedsRoot(cmd)
	ui.AddWaitingNodeFlags(cmd, &where.Options)
	flags := cmd.Flags()
	flags.DurationVar(&o.Grace, "grace", agent.DefaultGrace, "for how long a container has to be gone before what it leaves is removed")
	flags.DurationVar(&o.Every, "every", agent.DefaultEvery, "how often everything is looked at")
	flags.StringVar(&o.Contiv, "contiv", "", "serve contiv's API, which the plugin contivk8s calls, at this `socket`, such as "+contiv.DefaultSocket)
	ui.AddNetworkFlag(cmd, &o.Network, "the network that containers are attached to by contiv's API")
	flags.BoolVar(&o.DNS, "dns", false, "answer the questions of containers for names: on networks with the plugin dnsname, and with names on lists of egress")
	flags.StringVar(&o.Metrics, "metrics", "", "a TCP `address` at which to serve the metrics to Prometheus, such as 127.0.0.1:9469")
	addAgentDirFlag(cmd, &o.Dir)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Grace < 0 || o.Every < time.Second {
			return ui.Usagef("--grace can't be negative, and --every has to be a second at least")
		}
		if (o.Contiv == "") != (o.Network == "") {
			return ui.Usagef("--contiv and --network belong together: containers that come by the socket are attached to the network")
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		o.Options, o.Exec, o.Runtimes = where.Options, network.Exec, containers.Runtimes
		o.Options.Runtimes = nil // who repairs does not wait for them
		o.Log = newLogger(cmd.ErrOrStderr())
		if o.Contiv != "" {
			api, err := server.New(server.Options{
				Socket: o.Contiv, Network: o.Network, ConfDir: o.ConfDir, BinDirs: o.BinDirs, CacheDir: o.CacheDirs[0], Exec: o.Exec, Log: o.Log,
			})
			if err != nil {
				return err
			}
			o.API = api
		}
		heap.Small()
		return agent.Run(ctx, o)
	}
	cmd.AddCommand(newAgentStatus())
	return cmd
}

// newLogger writes lines of keys and values, without the time where the journal has it.
func newLogger(w io.Writer) *slog.Logger {
	withoutTime := func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 && os.Getenv("JOURNAL_STREAM") != "" {
			return slog.Attr{}
		}
		return a
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
}

func addAgentDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", agent.DefaultDir, "directory of the agent's lock and socket")
}

func newAgentStatus() *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Say what the agent of this node did",
		Example: `  cnictl agent status`,
		Args:    ui.Arguments(0, 0),
	}
	ui.AddJSONFlag(cmd)
	addAgentDirFlag(cmd, &dir)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := askAgent(cmd.Context(), dir)
		if err != nil {
			return plugin.CodeErrorf(types.ErrPluginNotAvailable, "start it with `systemctl start cnibox-agent` or `cnictl agent`; nothing depends on it", "the agent does not answer: %w", err)
		}
		return ui.Output(cmd, s, func(w io.Writer) { describeAgent(w, s) })
	}
	return cmd
}

// askAgent asks the agent for its status.
func askAgent(ctx context.Context, dir string) (*agent.Status, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, agent.SocketName))
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 5 * time.Second}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/status", nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it says %s", answer.Status)
	}
	s := &agent.Status{}
	return s, json.NewDecoder(io.LimitReader(answer.Body, 64<<20)).Decode(s)
}

func describeAgent(w io.Writer, s *agent.Status) {
	fmt.Fprintf(w, "running      since %s, process %d, version %s\n", s.Since.Format(time.DateTime), s.PID, s.Version)
	fmt.Fprintf(w, "repaired     %s in %s\n", ui.Counted(s.Repaired, "attachment"), ui.Counted(s.Repairs, "repair"))
	if l := s.Last; l != nil {
		fmt.Fprintf(w, "last repair  %s: %s: %d repaired in %.2f s\n", l.Time.Format(time.DateTime), ui.Harmless(l.Hit), l.Outcomes[repair.Repaired], l.Seconds)
	}
	fmt.Fprintf(w, "collected    %d, %d could not be\n", s.Collected[collect.Removed], s.Collected[collect.Failed])
	if s.DNS != nil {
		describeDNS(w, s.DNS)
	}
	if count := len(s.Slower); count > 0 {
		fmt.Fprintf(w, "slower       %s, from which something is taken again and again: %s first\n", ui.Counted(count, "attachment"), ui.Harmless(s.Slower[0]))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Findings)) {
		fmt.Fprintf(w, "%s  %s: %s\n", ui.Bad.Sprint("wrong"), ui.Harmless(name), ui.Harmless(s.Findings[name]))
	}
}

func describeDNS(w io.Writer, s *resolver.Status) {
	asked := 0
	var parts []string
	for _, how := range slices.Sorted(maps.Keys(s.Questions)) {
		asked += int(s.Questions[how])
		parts = append(parts, fmt.Sprintf("%s %.0f", how, s.Questions[how]))
	}
	at := "nowhere: no container has a name"
	if len(s.Addresses) > 0 {
		at = "at " + strings.Join(s.Addresses, ", ")
	}
	fmt.Fprintf(w, "names        answered %s; %s: %s\n", at, ui.Counted(asked, "question"), strings.Join(parts, ", "))
	for _, about := range slices.Sorted(maps.Keys(s.Wrong)) {
		fmt.Fprintf(w, "%s  %s\n", ui.Bad.Sprint("wrong"), ui.Harmless(s.Wrong[about]))
	}
}
