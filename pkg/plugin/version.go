package plugin

import (
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// CurrentVersion is the newest CNI version: results are kept in its form and
// turned into an older one when they are printed.
const CurrentVersion = "1.1.0"

// versions are all versions of CNI, oldest first. Each names a form of the
// configuration and of the result.
var versions = [...]string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Versions returns the CNI versions from oldest on, all of them for "".
func Versions(oldest string) []string {
	for i, v := range versions {
		if v == oldest {
			return versions[i:]
		}
	}
	return versions[:]
}

// age returns where v stands among the versions, -1 for an unknown one.
func age(v string) int {
	for i, known := range versions {
		if v == known {
			return i
		}
	}
	return -1
}

// AtLeast tells whether version v is the named one or newer. Both must be
// versions of CNI.
func AtLeast(v, oldest string) bool { return age(v) >= age(oldest) }

// firstVersion of each verb that came after 0.1.0.
func firstVersion(c Command) string {
	switch c {
	case Check:
		return "0.4.0"
	case GC, Status:
		return "1.1.0"
	}
	return versions[0]
}

// CheckVersion returns a CNI error unless a plugin that takes versions from
// oldest on can serve command for a configuration of the given version.
func CheckVersion(version string, c Command, oldest string) error {
	supported := Versions(oldest)
	if age(version) < age(supported[0]) {
		return &types.Error{
			Code:    types.ErrIncompatibleCNIVersion,
			Msg:     "incompatible CNI versions: the configuration's cniVersion is \"" + version + "\"",
			Details: "set cniVersion to one of " + strings.Join(supported, ", "),
		}
	}
	if first := firstVersion(c); !AtLeast(version, first) {
		return &types.Error{
			Code:    types.ErrIncompatibleCNIVersion,
			Msg:     "the configuration's cniVersion " + version + " does not allow " + string(c),
			Details: string(c) + " came with CNI " + first + ": set cniVersion to that or newer",
		}
	}
	return nil
}
