package netlab

import (
	"context"
	"fmt"
	"io"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// CacheDir is where a Host's libcni keeps its results.
const CacheDir = "/var/lib/cni"

// Libcni returns a libcni for the Host, with plugins from PluginDir and its cache in CacheDir. It reads files and starts
// processes, so it must be used in Host.Do.
func (h *Host) Libcni() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir([]string{PluginDir}, CacheDir, h.Executor())
}

// Executor returns what a libcni of the Host starts plugins with.
func (h *Host) Executor() invoke.Exec {
	return &executor{path: h.searchPath(), DefaultExec: &invoke.DefaultExec{
		RawExec:       &invoke.RawExec{Stderr: io.Discard},
		PluginDecoder: version.PluginDecoder{},
	}}
}

// AddList attaches a container to the network that a conflist (JSON) describes, and returns the result, converted to the
// newest version.
func (h *Host) AddList(conflist string, rt *libcni.RuntimeConf) (*types100.Result, error) {
	var result *types100.Result
	err := h.withList(conflist, func(cni libcni.CNI, list *libcni.NetworkConfigList) error {
		answer, err := cni.AddNetworkList(context.Background(), list, rt)
		if err != nil {
			return err
		}
		result, err = types100.NewResultFromResult(answer)
		return err
	})
	return result, err
}

// DelList detaches a container.
func (h *Host) DelList(conflist string, rt *libcni.RuntimeConf) error {
	return h.withList(conflist, func(cni libcni.CNI, list *libcni.NetworkConfigList) error {
		return cni.DelNetworkList(context.Background(), list, rt)
	})
}

// CheckList checks an attachment.
func (h *Host) CheckList(conflist string, rt *libcni.RuntimeConf) error {
	return h.withList(conflist, func(cni libcni.CNI, list *libcni.NetworkConfigList) error {
		return cni.CheckNetworkList(context.Background(), list, rt)
	})
}

// GCList removes what the network has of attachments that are not in args. With nil args libcni detaches everything it
// has in its cache, and gives the plugins no list.
func (h *Host) GCList(conflist string, args *libcni.GCArgs) error {
	return h.withList(conflist, func(cni libcni.CNI, list *libcni.NetworkConfigList) error {
		return cni.GCNetworkList(context.Background(), list, args)
	})
}

// StatusList asks whether the network is ready for an ADD.
func (h *Host) StatusList(conflist string) error {
	return h.withList(conflist, func(cni libcni.CNI, list *libcni.NetworkConfigList) error {
		return cni.GetStatusNetworkList(context.Background(), list)
	})
}

func (h *Host) withList(conflist string, use func(libcni.CNI, *libcni.NetworkConfigList) error) error {
	list, err := libcni.NetworkConfFromBytes([]byte(conflist))
	if err != nil {
		return fmt.Errorf("load a conflist: %w", err)
	}
	return h.do(func() error { return use(h.Libcni(), list) })
}
