package doctor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/process/request"
)

// checkStatus asks our own plugins whether they could serve an ADD, of networks in which nothing else was found that says why not.
func checkStatus(ctx context.Context, s *subject) (list []Finding, err error) {
	for _, n := range s.networks {
		if s.hasError(n.Name) {
			continue
		}
		for _, p := range netconf.Of(n.List, n.File, s.row).Plugins {
			isOther := func(p *netconf.Part) bool { return p.Row == nil }
			if slices.ContainsFunc(named(p.All()), isOther) {
				continue // others are not asked
			}
			if wrong := s.ask(ctx, p.Row, n, p.Config); wrong != nil {
				list = append(list, notReady(n, p.Named, wrong))
			}
		}
	}
	return list, nil
}

// ask calls a plugin's STATUS in this process, whatever version the network has.
func (s *subject) ask(ctx context.Context, row *plugin.Descriptor, n *network, config *conf.Object) error {
	config = config.Copy()
	config.Set("name", n.Name)
	config.Set("cniVersion", plugin.CurrentVersion)
	host := netns.NewPair("", false)
	defer host.Close()
	r := &plugin.Request{Command: plugin.Status, Pair: host, Plugins: s.Plugins, InProcess: true, Results: filepath.Join(s.cacheDir(), "results")}
	if err := request.Read(r, config, *row); err != nil {
		return err
	}
	return row.Plugin.Status(ctx, r)
}

var networkNotReady = codes.Declare(finding.Code{Name: "network-not-ready", Severity: finding.Error,
	Meaning: "A plugin says that it can't serve an ADD now (STATUS).",
	Remedy:  "what the plugin says"})

func notReady(n *network, name string, err error) Finding {
	if missing, is := errors.AsType[*plugin.MissingFeature](err); is {
		return found(kernelFeatureMissing, n.Name, modprobe(missing.Module), "the kernel has no %s, and plugin %s of network %s needs it",
			missing.Name, name, n.Name)
	}
	e, remedy := plugin.AsError(err), finding.Remedy(nil)
	if e.Details != "" {
		remedy = finding.Say("%s", e.Details)
	}
	return found(networkNotReady, n.Name, remedy, "plugin %s of network %s is not ready: %s", name, n.Name, e.Msg)
}

var (
	ipvsNftables = codes.Declare(finding.Code{Name: "ipvs-nftables", Severity: finding.Warning,
		Meaning: "Masquerading and published ports come before kube-proxy's rules, and Services may not work.",
		Remedy:  "the backend `iptables`, by `sed -i …` in the network's file"})
	backendOf = codes.Declare(finding.Code{Name: "backend", Severity: finding.Info,
		Meaning: "How a plugin does its work on this node, and why so."})
)

// checkBackends says how plugins that choose would do their work, and why.
func checkBackends(_ context.Context, s *subject) (list []Finding, err error) {
	ipvs, err := value("net/ipv4/conf/kube-ipvs0/forwarding") // kube-proxy has the addresses of Services on it in IPVS mode
	var texts []string
	networks := map[string][]string{} // by what their plugins say
	for _, n := range s.networks {
		for _, p := range n.parts {
			row := p.Row
			if row == nil {
				continue
			}
			if explainer, is := row.Plugin.(plugin.Explainer); is {
				for _, text := range explainer.Explain(p.Config) {
					text = p.Named + " " + text
					if networks[text] == nil {
						texts = append(texts, text)
					}
					networks[text] = append(networks[text], n.Name)
				}
			}
			for _, key := range []string{"ipMasqBackend", "backend"} {
				backend := ""
				p.Config.String(key, &backend)
				if ipvs != "" && backend == "nftables" && row.Kind != plugin.IPAM {
					replace := fmt.Sprintf(`s/("%s": *)"nftables"/\1"iptables"/`, key)
					list = append(list, found(ipvsNftables, n.Name, finding.Run("sed", "-i", "-E", replace, n.File),
						"kube-proxy is in IPVS mode (kube-ipvs0 is there), and in network %s %s of %s is nftables", n.Name, key, p.Named))
				}
			}
		}
	}
	for _, text := range texts {
		list = append(list, found(backendOf, "", nil, "%s (%s)", text, strings.Join(networks[text], ", ")))
	}
	return list, err
}
