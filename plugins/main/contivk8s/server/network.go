package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// shim is the plugin that calls this server.
const shim = "contivk8s"

var errLoop = errors.New("has the plugin " + shim + ", which calls this agent: it would call itself")

// load returns the network that containers are attached to, as its file is now.
func (s *Server) load() (*libcni.NetworkConfigList, error) {
	networks, unread, err := node.Load(s.ConfDir)
	if err != nil {
		return nil, plugin.ConfigError("make the directory readable", "%w", err)
	}
	var names []string
	for _, w := range networks {
		names = append(names, w.Name)
		if w.Name != s.Network {
			continue
		}
		if callsShim(w.List.Bytes) {
			return nil, plugin.ConfigError("name the network that containers are really attached to, which has another name",
				"network %s (%s) %w", s.Network, w.File, errLoop)
		}
		return w.List, nil
	}
	why := ""
	for _, u := range unread {
		why += fmt.Sprintf("; %s can't be used: %s", u.What, u.Why)
	}
	remedy := "write the network's file, or name another network"
	if names != nil {
		remedy += "; there is " + strings.Join(names, ", ")
	}
	return nil, plugin.ConfigError(remedy, "no network %q in %s%s", s.Network, s.ConfDir, why)
}

// callsShim reports whether a plugin anywhere in a configuration is the shim, under any name that it can have.
func callsShim(config []byte) bool {
	var value any
	return json.Unmarshal(config, &value) == nil && hasShim(value)
}

func hasShim(value any) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, hasShim)
	case map[string]any:
		kind, _ := v["type"].(string)
		return kind == shim || strings.HasSuffix(kind, "-"+shim) || slices.ContainsFunc(slices.Collect(maps.Values(v)), hasShim)
	}
	return false
}
