package netlab

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// CacheDir is where a Host's libcni keeps its results.
const CacheDir = "/var/lib/cni"

// executor is libcni's own, with the PATH of a Host.
type executor struct {
	*invoke.DefaultExec
	path string
}

func (e *executor) ExecPlugin(ctx context.Context, plugin string, stdin []byte, environ []string) ([]byte, error) {
	return e.DefaultExec.ExecPlugin(ctx, plugin, stdin, append(environ, "PATH="+e.path)) // the last of two equal names counts
}

// Executor returns what a libcni of the Host starts plugins with.
func (h *Host) Executor() invoke.Exec {
	return &executor{path: h.path, DefaultExec: &invoke.DefaultExec{
		RawExec:       &invoke.RawExec{Stderr: io.Discard},
		PluginDecoder: version.PluginDecoder{},
	}}
}

// AddList attaches a container to the network that a conflist (JSON) describes, and returns the result, converted to the
// newest version.
func (h *Host) AddList(conflist string, rt *libcni.RuntimeConf) (result *types100.Result, err error) {
	err = h.withList(conflist, func(ctx context.Context, cni libcni.CNI, list *libcni.NetworkConfigList) error {
		answer, err := cni.AddNetworkList(ctx, list, rt)
		if err == nil {
			result, err = types100.NewResultFromResult(answer)
		}
		return err
	})
	return result, err
}

// DelList detaches a container.
func (h *Host) DelList(conflist string, rt *libcni.RuntimeConf) error {
	return h.withList(conflist, func(ctx context.Context, cni libcni.CNI, list *libcni.NetworkConfigList) error {
		return cni.DelNetworkList(ctx, list, rt)
	})
}

// CheckList checks an attachment.
func (h *Host) CheckList(conflist string, rt *libcni.RuntimeConf) error {
	return h.withList(conflist, func(ctx context.Context, cni libcni.CNI, list *libcni.NetworkConfigList) error {
		return cni.CheckNetworkList(ctx, list, rt)
	})
}

// GCList removes what the network has of attachments that are not in args. With nil args libcni detaches everything it
// has in its cache, and gives the plugins no list.
func (h *Host) GCList(conflist string, args *libcni.GCArgs) error {
	return h.withList(conflist, func(ctx context.Context, cni libcni.CNI, list *libcni.NetworkConfigList) error {
		return cni.GCNetworkList(ctx, list, args)
	})
}

// StatusList asks whether the network is ready for an ADD.
func (h *Host) StatusList(conflist string) error {
	return h.withList(conflist, func(ctx context.Context, cni libcni.CNI, list *libcni.NetworkConfigList) error {
		return cni.GetStatusNetworkList(ctx, list)
	})
}

// ValidateList asks the plugins whether they know the network's version, as runtimes do when they load it.
func (h *Host) ValidateList(conflist string) error {
	return h.withList(conflist, func(ctx context.Context, cni libcni.CNI, list *libcni.NetworkConfigList) error {
		_, err := cni.ValidateNetworkList(ctx, list)
		return err
	})
}

// withList lends a libcni for the Host, with plugins from PluginDir and its cache in CacheDir.
func (h *Host) withList(conflist string, use func(context.Context, libcni.CNI, *libcni.NetworkConfigList) error) error {
	list, err := libcni.NetworkConfFromBytes([]byte(conflist))
	if err != nil {
		return fmt.Errorf("load a conflist: %w", err)
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{PluginDir}, CacheDir, h.Executor())
	return h.do(func() error { return use(context.Background(), cni, list) })
}

// Addresses returns the first address of each family that a result has, invalid where there is none.
func Addresses(result *types100.Result) (v4, v6 netip.Addr) {
	for _, ip := range result.IPs {
		address, _ := netip.AddrFromSlice(ip.Address.IP)
		switch address = address.Unmap(); {
		case address.Is4() && !v4.IsValid():
			v4 = address
		case address.Is6() && !v6.IsValid():
			v6 = address
		}
	}
	return v4, v6
}
