package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// MissingFeature is the error of a kernel that lacks a feature. AsError gives it the code of a plugin that is not available.
type MissingFeature struct {
	Name    string // what it lacks, such as "links of type vlan"
	Module  string // the module that has the feature, or several with commas; "" if it is never in one
	Option  string // what a kernel is built with to have it, such as "CONFIG_IFB"; can be ""
	Version string // of Linux, the first that has it, such as "5.11"; if it says what Option would
	Instead string // what to do without the feature; can be ""
	Err     error  // what the kernel said
}

func (m *MissingFeature) Error() string {
	return fmt.Sprintf("the kernel has no %s: %v", m.Name, m.Err)
}

func (m *MissingFeature) Unwrap() error { return m.Err }

// Remedy says what can be done about it.
func (m *MissingFeature) Remedy() string {
	var ways []string
	if m.Module != "" {
		ways = append(ways, "load the kernel module "+m.Module)
	}
	if m.Version != "" {
		ways = append(ways, "use a kernel of version "+m.Version+" or later")
	} else {
		ways = append(ways, "use a kernel with "+cmp.Or(m.Option, "that module"))
	}
	if m.Instead != "" {
		ways = append(ways, m.Instead)
	}
	return strings.Join(ways, ", or ")
}

// IsMissingFeature reports whether an error is about a feature that the kernel lacks.
func IsMissingFeature(err error) bool {
	_, is := errors.AsType[*MissingFeature](err)
	return is
}

// linkModules are the modules that are not called as the links that they make.
var linkModules = map[string]string{"vlan": "8021q", "tap": "tun"}

// linkModule returns the module that has a type of links.
func linkModule(linkType string) string { return cmp.Or(linkModules[linkType], linkType) }

// MissingLinkType is the error of a kernel that can't make links of a type.
func MissingLinkType(linkType string, err error) error {
	m := &MissingFeature{Name: "links of type " + linkType, Module: linkModule(linkType), Err: err}
	if linkType == "vlan" {
		m.Instead = "name another master, as some links can't have VLANs"
	}
	return m
}
