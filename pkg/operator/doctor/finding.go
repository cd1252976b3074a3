package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/repair"
)

// Finding is something on this node that is worth a person's attention.
type Finding = finding.Finding

// codes are the kinds that the checks have declared.
var codes finding.Codes

// Codes returns all kinds of findings, with those of repair, the worst first. docs/operate/cnictl/doctor.md has them as a table.
func Codes() finding.Codes { return slices.Concat(codes, repair.Codes()).Sorted() }

// found makes a finding of what the checks look at: of a network, if it is about one. Commands name networks: one whose name CNI does not allow
// could be taken for an option.
func found(code *finding.Code, network string, remedy finding.Remedy, format string, args ...any) Finding {
	if network != "" && utils.ValidateNetworkName(network) != nil {
		remedy = finding.Say("give network %q a name that CNI allows", network)
	}
	f := code.Found(remedy, format, args...)
	f.Network = network
	return f
}

// some lists the first of many names.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// count writes a number of things.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
