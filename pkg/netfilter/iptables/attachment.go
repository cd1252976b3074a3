package iptables

import (
	"encoding/hex"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sha512"
)

// use is one of the things that rules are made for.
type use struct {
	name   string // in records
	table  string
	prefix string // of the names of containers' chains; "" if they have none
	old    string // the same for a chain that earlier versions of the reference plugin made
}

// The tables.
const (
	natTable    = "nat"
	filterTable = "filter"
)

// The prefixes of containers' chains.
const (
	masqueradePrefix = "CNI-"
	portsPrefix      = "CNI-DN-"
	oldPortsPrefix   = "CNI-SN-"
)

// forMasquerade, forPorts and forForward are the uses.
func forMasquerade() use { return use{name: "masquerade", table: natTable, prefix: masqueradePrefix} }
func forPorts() use {
	return use{name: "ports", table: natTable, prefix: portsPrefix, old: oldPortsPrefix}
}
func forForward() use { return use{name: "forward", table: filterTable} }

// chainLength is the length of the names of containers' chains.
const chainLength = 28

// chainName returns the name of a container's chain for a network.
func chainName(prefix, network, container string) string {
	return (prefix + digest(network, container))[:chainLength]
}

// digest is the hash that names are cut from.
func digest(network, container string) string {
	sum := sha512.Sum512([]byte(network + container))
	return hex.EncodeToString(sum[:])
}

// isChain tells whether a name can be one that chainName returns.
func isChain(prefix, name string) bool {
	if len(name) != chainLength || name[:len(prefix)] != prefix {
		return false
	}
	for i := len(prefix); i < chainLength; i++ {
		if c := name[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// attachment is whose rules are made, found or removed, for one use.
type attachment struct {
	use use
	key plugin.Key
}

// chain returns the name of the chain that holds the attachment's rules, ""
// if there is none. Attachments of one container to one network share it.
func (a attachment) chain() string {
	if a.use.prefix == "" {
		return ""
	}
	return chainName(a.use.prefix, a.key.Network, a.key.ContainerID)
}

// chains returns chain, and what earlier versions of the reference plugin made
// besides.
func (a attachment) chains() []string {
	if a.use.prefix == "" {
		return nil
	}
	list := []string{a.chain()}
	if a.use.old != "" {
		list = append(list, chainName(a.use.old, a.key.Network, a.key.ContainerID))
	}
	return list
}

// places returns the chains of which one at least is there if the attachment has
// rules.
func (a attachment) places() []string {
	if a.use.prefix == "" {
		return []string{forwardChain}
	}
	return a.chains()
}

// recordName returns the name of the record that the attachment is in.
func (a attachment) recordName() string {
	return a.use.name + "-" + digest(a.key.Network, a.key.ContainerID)[:24]
}

// owner is how indexes name the attachment.
func (a attachment) owner() string { return a.recordName() + ":" + a.key.IfName }

// maxComment is the longest comment that rules are given as it is; the reference
// plugin cuts a longer one two characters earlier.
const maxComment = 255

func trimComment(s string) string {
	if len(s) <= maxComment {
		return s
	}
	return s[:maxComment-2] + "..."
}
