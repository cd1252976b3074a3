package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/state"
)

// cached is an attachment of libcni's cache.
type cached struct {
	libcni.NetworkAttachment
	since time.Time // when its file was written
}

func (c *cached) name() types.GCAttachment {
	return types.GCAttachment{ContainerID: c.ContainerID, IfName: c.IfName}
}

func (n Node) resultsDir() string { return filepath.Join(n.CacheDir, "results") }

func (n Node) resultOf(network string, a types.GCAttachment) string {
	return filepath.Join(n.resultsDir(), network+"-"+a.ContainerID+"-"+a.IfName)
}

// attachments reads what libcni's cache has of a network. libcni itself passes over what it can't read. Here that is in unread, by the
// names of the files, as far as it may be about this network.
func (n Node) attachments(network string) (known []*cached, unread map[string]error, err error) {
	entries, err := os.ReadDir(n.resultsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("read the cache of results: %w", err)
	}
	unread = map[string]error{}
	for _, e := range entries {
		path := filepath.Join(n.resultsDir(), e.Name())
		c, err := readCached(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // a DEL meanwhile
		case err == nil && c.Network != network:
		case err == nil && path == n.resultOf(network, c.name()):
			known = append(known, c)
		case err == nil:
			unread[path] = fmt.Errorf("%s is not the file of %s/%s, which it is about", path, c.ContainerID, c.IfName)
		case strings.HasPrefix(e.Name(), network+"-"):
			unread[path] = err
		}
	}
	return known, unread, nil
}

// readCached reads a file of libcni's cache.
func readCached(path string) (*cached, error) {
	text, err := state.Read(path)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var info struct {
		Kind           string
		ContainerID    string
		Config         []byte
		IfName         string
		NetworkName    string
		NetNS          string
		CniArgs        [][2]string
		CapabilityArgs map[string]any
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return nil, fmt.Errorf("%s is not a result: %w", path, err)
	}
	if info.Kind != libcni.CNICacheV1 || info.ContainerID == "" || info.IfName == "" || info.NetworkName == "" {
		return nil, fmt.Errorf("%s does not say which attachment it is about", path)
	}
	return &cached{libcni.NetworkAttachment{
		ContainerID: info.ContainerID, Network: info.NetworkName, IfName: info.IfName, Config: info.Config,
		NetNS: info.NetNS, CniArgs: info.CniArgs, CapabilityArgs: info.CapabilityArgs,
	}, st.ModTime()}, nil
}
