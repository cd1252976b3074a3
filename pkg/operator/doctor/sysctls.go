package doctor

import (
	"context"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

var sysctlsReadOnly = codes.Declare(finding.Code{Name: "sysctls-read-only", Severity: finding.Warning,
	Meaning: "Containers take whoever sends router advertisements for their IPv6 router: that can't be refused. Their sysctls can't be set either.",
	Remedy:  "`mount -o remount,bind,rw /proc/sys`, where the runtime runs"})

// checkSysctls looks whether plugins can keep containers from taking others for their routers, or need not.
func checkSysctls(context.Context, *subject) ([]Finding, error) {
	value, lacksIPv6 := sysctl.Get("net/ipv6/conf/default/accept_ra")
	err := sysctl.Writable()
	if err == nil || lacksIPv6 != nil || value == "0" {
		return nil, nil
	}
	return []Finding{found(sysctlsReadOnly, "", finding.Run("mount", "-o", "remount,bind,rw", "/proc/sys"), "%v", err)}, nil
}
