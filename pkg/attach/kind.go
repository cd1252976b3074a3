package attach

import (
	"cmp"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
)

// modules are those of the kernel that are not called as the links that they are for.
var modules = map[string]string{"vlan": "8021q", "tap": "tun"}

// NoKind is the error of a kernel that can't make links of a kind, by what it said.
func NoKind(kind string, err error) *types.Error {
	remedy := "load the kernel module " + cmp.Or(modules[kind], kind) + ", or use a kernel that has it"
	if kind == "vlan" {
		remedy += "; or name another master, as some links can't have VLANs"
	}
	return types.NewError(types.ErrPluginNotAvailable, fmt.Sprintf("this kernel makes no links of type %s: %v", kind, err), remedy)
}
