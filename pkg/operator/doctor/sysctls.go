package doctor

import (
	"context"

	"github.com/cnibox/cnibox/pkg/sysctl"
)

// checkSysctls looks whether plugins can keep containers from taking others for their routers, or need not.
func checkSysctls(context.Context, *subject) ([]Finding, error) {
	value, lacksIPv6 := sysctl.Get("net/ipv6/conf/default/accept_ra")
	err := sysctl.Writable()
	if err == nil || lacksIPv6 != nil || value == "0" {
		return nil, nil
	}
	return []Finding{found("sysctls-read-only", "", command("mount", "-o", "remount,bind,rw", "/proc/sys"), "%v", err)}, nil
}
