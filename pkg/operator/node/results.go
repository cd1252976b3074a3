package node

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
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/pkg/state"
)

// Result is what libcni has kept of an ADD.
type Result struct {
	libcni.NetworkAttachment // with the configuration, CNI_ARGS and the capability arguments that ADD had

	Dir     string           // the cache directory
	Path    string           // the file
	Written time.Time        // when
	Result  *types100.Result // nil if it can't be read

	size int64 // of the file
}

// Key returns whose result it is.
func (r *Result) Key() plugin.Key {
	return plugin.Key{Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName}
}

// PathOf returns the file that a cache directory has of an attachment.
func PathOf(cacheDir string, k plugin.Key) string {
	return filepath.Join(cacheDir, "results", k.Network+"-"+k.ContainerID+"-"+k.IfName)
}

// readResults reads all caches. Files that are as in the list known are not read again. libcni itself passes over what it can't read; here
// that is noted.
func (n *Node) readResults(o Options, known []*Result) (list []*Result, unread []Unread) {
	byPath := map[string]*Result{}
	for _, r := range known {
		byPath[r.Path] = r
	}
	for _, dir := range o.caches() {
		entries, err := os.ReadDir(filepath.Join(dir, "results"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			unread = append(unread, Unread{filepath.Join(dir, "results"), err.Error(), ""})
		}
		for _, e := range entries {
			path := filepath.Join(dir, "results", e.Name())
			r, err := readAgain(path, byPath[path])
			switch {
			case errors.Is(err, fs.ErrNotExist): // a DEL meanwhile
			case err != nil:
				unread = append(unread, Unread{path, strings.TrimPrefix(err.Error(), path+" "), n.networkIn(e.Name())})
			case path != PathOf(dir, r.Key()):
				unread = append(unread, Unread{path, fmt.Sprintf("it is not the file of %s, which it is about", r.Key()), r.Network})
			default:
				r.Dir = dir
				list = append(list, r)
			}
		}
	}
	return list, unread
}

// readAgain reads a file unless it is as it was.
func readAgain(path string, known *Result) (*Result, error) {
	if known != nil {
		if file, err := os.Stat(path); err == nil && file.ModTime().Equal(known.Written) && file.Size() == known.size {
			return known, nil
		}
	}
	return ReadResult(path)
}

// networkIn returns the network that a cache file's name begins with, "" if it is none that is known.
func (n *Node) networkIn(file string) (name string) {
	for _, w := range n.Networks {
		if strings.HasPrefix(file, w.Name+"-") && len(w.Name) > len(name) {
			name = w.Name
		}
	}
	return name
}

// ReadResult reads a file of libcni's cache.
func ReadResult(path string) (*Result, error) {
	file, err := os.Stat(path) // first: what is written meanwhile then looks older than it is, and is read again
	if err != nil {
		return nil, err
	}
	text, err := state.Read(path)
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
		Result         json.RawMessage
	}
	if err := json.Unmarshal(text, &info); err != nil {
		return nil, fmt.Errorf("%s is not a result: %w", path, err)
	}
	if info.Kind != libcni.CNICacheV1 || info.ContainerID == "" || info.IfName == "" || info.NetworkName == "" {
		return nil, fmt.Errorf("%s does not say which attachment it is about", path)
	}
	r := &Result{
		NetworkAttachment: libcni.NetworkAttachment{
			ContainerID: info.ContainerID, Network: info.NetworkName, IfName: info.IfName, Config: info.Config,
			NetNS: info.NetNS, CniArgs: info.CniArgs, CapabilityArgs: info.CapabilityArgs,
		},
		Path: path, Written: file.ModTime(), size: file.Size(),
	}
	r.Result, _ = parseResult(info.Result)
	if r.NetNS == "" && r.Result != nil { // libcni before 1.2 does not write it down
		for _, i := range r.Result.Interfaces {
			if i.Name == r.IfName && i.Sandbox != "" {
				r.NetNS = i.Sandbox
			}
		}
	}
	return r, nil
}

// parseResult reads a result of any version.
func parseResult(text []byte) (*types100.Result, error) {
	o, err := conf.Parse(text)
	if err != nil {
		return nil, err
	}
	version := "0.1.0"
	o.String("cniVersion", &version)
	return result.Parse(o, version)
}
