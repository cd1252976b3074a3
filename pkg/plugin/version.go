package plugin

import (
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// CurrentVersion is the newest CNI version: results are kept in its form and turned into an older one when they are printed.
const CurrentVersion = "1.1.0"

// versions are all versions of CNI, oldest first. Each names a form of the configuration and of the result.
var versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// first is the version that a verb came with, if it is not the oldest.
var first = map[Command]string{Check: "0.4.0", GC: "1.1.0", Status: "1.1.0"}

// Versions returns the CNI versions from oldest on, all of them for "".
func Versions(oldest string) []string { return versions[max(age(oldest), 0):] }

// KnownVersion reports whether v is a version of CNI.
func KnownVersion(v string) bool { return age(v) >= 0 }

// age returns where v stands among the versions, -1 for an unknown one.
func age(v string) int { return slices.Index(versions, v) }

// AtLeast reports whether version v is the named one or newer. Both must be versions of CNI.
func AtLeast(v, oldest string) bool { return age(v) >= age(oldest) }

// CheckVersion returns a CNI error unless a plugin that takes versions from oldest on can serve command for a configuration of the
// given version.
func CheckVersion(version string, c Command, oldest string) error {
	if supported := Versions(oldest); !slices.Contains(supported, version) {
		return types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions: the configuration's cniVersion is \""+version+"\"",
			"set cniVersion to one of "+strings.Join(supported, ", "))
	}
	if !AtLeast(version, first[c]) { // in the words of the reference plugins, which programs look for
		return types.NewError(types.ErrIncompatibleCNIVersion, "config version does not allow "+string(c),
			string(c)+" came with CNI "+first[c]+", the configuration's cniVersion is "+version+": set it to that or newer")
	}
	return nil
}
