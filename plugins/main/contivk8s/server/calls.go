package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

// add attaches a container and answers. If either fails, nothing is left of it.
func (s *Server) add(w http.ResponseWriter, r *http.Request, q contiv.Request) (err error) {
	select {
	case s.adds <- struct{}{}:
		defer func() { <-s.adds }()
	default:
		return busy("%d containers are being attached, which is the most at once", most)
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), addLimit, fmt.Errorf("it has taken more than %v", addLimit))
	defer cancel()
	key := s.keyOf(q)
	if err := s.locks.acquire(ctx, key); err != nil {
		return busy("another call for this container is under way: %w", err)
	}
	defer s.locks.release(key)
	return s.attach(ctx, w, r, q)
}

func (s *Server) attach(ctx context.Context, w http.ResponseWriter, r *http.Request, q contiv.Request) (err error) {
	list, err := s.load()
	if err != nil {
		return err
	}
	n, err := openNamespace(r, q)
	if err != nil {
		return err
	}
	defer n.Close()
	if _, err := n.isAtPath(); err != nil {
		return err
	}
	path := node.PathOf(s.CacheDir, s.keyOf(q))
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return plugin.Errorf("call DEL first", "container %s has %s on network %s already, of which %s is the result", q.ContainerID, q.IfName, s.Network, path)
	}
	rt := s.runtimeConf(q, n.path)
	isAdded := false
	defer func() { // also if a panic ends it
		if !isAdded {
			err = errors.Join(err, s.undo(ctx, list, rt, n))
		}
	}()
	made, err := libcni.NewCNIConfigWithCacheDir(s.BinDirs, s.CacheDir, s.exec(n)).AddNetworkList(ctx, list, rt)
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	if _, err := n.isAtPath(); err != nil {
		return err
	}
	result, err := types100.NewResultFromResult(made)
	if err != nil {
		return err
	}
	if err := send(w, responseOf(q, result)); err != nil {
		return fmt.Errorf("the client can't be answered: %w", err)
	}
	isAdded = true
	return nil
}

// undo takes away what an ADD has made that nobody will use.
func (s *Server) undo(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, n *namespace) error {
	if err := s.delList(ctx, list, rt, n); err != nil {
		s.Log.Error("what a failed ADD has made can't be taken away", "container", rt.ContainerID, "interface", rt.IfName, "error", err)
		return fmt.Errorf("take away what was made: %w", err)
	}
	return nil
}

// responseOf returns the answer to an ADD: the first address of each family.
func responseOf(q contiv.Request, r *types100.Result) contiv.Response {
	a := contiv.Response{EndpointID: q.ContainerID}
	for _, p := range result.PrefixesOf(r, q.IfName) {
		switch {
		case p.Addr().Is4() && a.IPAddress == "":
			a.IPAddress = p.String()
		case p.Addr().Is6() && a.IPv6Address == "":
			a.IPv6Address = p.String()
		}
	}
	return a
}

// del detaches a container. It goes on when the client has gone.
func (s *Server) del(r *http.Request, q contiv.Request) error {
	ctx, cancel := context.WithTimeoutCause(r.Context(), delLimit, fmt.Errorf("it has taken more than %v", delLimit))
	defer cancel()
	if err := waitFor(ctx, s.dels); err != nil {
		return busy("%d containers are being detached, which is the most at once: %w", most, err)
	}
	defer func() { <-s.dels }()
	n, err := openNamespace(r, q)
	if err != nil {
		s.Log.Debug("its namespace counts as gone", "container", q.ContainerID, "error", err)
	} else {
		defer n.Close()
	}
	return s.detach(ctx, q, n)
}

// detach has a container detached that may be unknown, or whose namespace, if it is nil, must be found where it was.
func (s *Server) detach(ctx context.Context, q contiv.Request, n *namespace) error {
	key := s.keyOf(q)
	if err := s.locks.acquire(ctx, key); err != nil {
		return busy("another call for this container is under way: %w", err)
	}
	defer s.locks.release(key)
	result, err := node.ReadResult(node.PathOf(s.CacheDir, key))
	if err != nil || result.Key() != key {
		result = nil
	}
	list, err := s.listOf(result)
	if err != nil && result == nil {
		s.Log.Warn("nothing is known of a container that must be detached", "container", q.ContainerID, "interface", q.IfName, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	rt := s.runtimeConf(q, "")
	if n == nil && result != nil {
		if n, err = openAt(result.NetNS); err == nil {
			defer n.Close()
		}
	}
	if n != nil {
		rt.NetNS = n.path
	}
	return s.delList(ctx, list, rt, n)
}

// delList calls the DEL of all plugins, also of a client that has gone.
func (s *Server) delList(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, n *namespace) error {
	return collect.DelKept(context.WithoutCancel(ctx), list, rt, s.CacheDir, s.BinDirs, s.exec(n))
}

// listOf returns the configuration that a container was attached with, the network's file if that is not known.
func (s *Server) listOf(result *node.Result) (*libcni.NetworkConfigList, error) {
	if result != nil {
		if list, err := libcni.NetworkConfFromBytes(result.Config); err == nil {
			return list, nil
		}
	}
	return s.load()
}

// exec returns what calls plugins for a container with a namespace, nil if there is none.
func (s *Server) exec(n *namespace) invoke.Exec {
	exec := s.Exec(s.CacheDir)
	if n != nil {
		if is, err := n.isAtPath(); !is || err != nil {
			exec = through{exec, n.path, n.openPath()}
		}
	}
	return exec
}

func (s *Server) runtimeConf(q contiv.Request, netns string) *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{ContainerID: q.ContainerID, IfName: q.IfName, NetNS: netns, Args: [][2]string{{"IgnoreUnknown", "1"}}}
	for _, pair := range [][2]string{{"K8S_POD_NAMESPACE", q.Namespace}, {"K8S_POD_NAME", q.Pod}, {"K8S_POD_INFRA_CONTAINER_ID", q.ContainerID}} {
		if pair[1] != "" {
			rt.Args = append(rt.Args, pair)
		}
	}
	return rt
}

func (s *Server) keyOf(q contiv.Request) plugin.Key {
	return plugin.Key{Network: s.Network, ContainerID: q.ContainerID, IfName: q.IfName}
}
