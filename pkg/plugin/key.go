package plugin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
)

// Key is what everything that an attachment holds is named and found by.
type Key struct {
	Network     string // the conflist's name
	ContainerID string
	IfName      string // the name inside the container
}

// MaxKeyText is the length of the longest text Key.String returns: the longest comment that `nft -f` accepts when it loads a saved ruleset.
const MaxKeyText = 128

// String returns the key as people read it, network/containerID/ifname. The three can't hold a slash, so equal texts of up to
// MaxKeyText bytes are equal keys; a longer one is cut and has its hash added.
func (k Key) String() string {
	text := k.Network + "/" + k.ContainerID + "/" + k.IfName
	if len(text) <= MaxKeyText {
		return text
	}
	tail := fmt.Sprintf("~%016x/%.15s", k.hash(""), k.IfName) // a list of GC may have longer names than links have
	head := k.Network + "/" + k.ContainerID
	return head[:min(len(head), MaxKeyText-len(tail))] + tail
}

// ParseKey returns the key whose text String has returned. Of a text that was cut it returns what is known for certain.
func ParseKey(text string) (k Key) {
	slash := strings.LastIndexByte(text, '/')
	if slash < 0 {
		return k
	}
	head, ifName := text[:slash], text[slash+1:]
	head, _, isCut := strings.Cut(head, "~") // which is in no name of a network or container
	network, containerID, hasNetwork := strings.Cut(head, "/")
	switch {
	case isCut && hasNetwork:
		return Key{Network: network}
	case isCut:
		return Key{}
	}
	return Key{Network: network, ContainerID: containerID, IfName: ifName}
}

// SetIn adds the key to a document: a state file's, or a request's.
func (k Key) SetIn(o *conf.Object) {
	o.Set("network", k.Network)
	o.Set("containerID", k.ContainerID)
	o.Set("ifname", k.IfName)
}

// KeyIn returns the key that Put added to a document.
func KeyIn(o *conf.Object) (k Key) {
	o.String("network", &k.Network)
	o.String("containerID", &k.ContainerID)
	o.String("ifname", &k.IfName)
	return k
}

// ID is a key in a fixed size, for maps and sets of the kernel: first half the network's hash, so that all of a network's can be
// told from others', second half the hash of the whole key and of what it is used for.
type ID [16]byte

// ID returns the key's ID for one use of it, such as "masquerade".
func (k Key) ID(use string) ID {
	network := NetworkHash(k.Network)
	return ID(binary.BigEndian.AppendUint64(network[:], k.hash(use)))
}

// NetworkHash returns the first half of the IDs of all keys of a network.
func NetworkHash(network string) [8]byte {
	return [8]byte(binary.BigEndian.AppendUint64(nil, hash(network)))
}

// HostEnds is how many names the host end of a veth can have: the first that is free is used.
const HostEnds = 4

// HostEnd returns the salt-th name for the host end of the attachment's veth: "veth" and eight hex digits, the form the reference
// plugins use.
func (k Key) HostEnd(salt int) string {
	return fmt.Sprintf("veth%08x", uint32(k.hash(fmt.Sprint("host end ", salt))))
}

// IsHostEnd reports whether a link is called as the host end of the attachment's veth.
func (k Key) IsHostEnd(name string) bool {
	for salt := range HostEnds {
		if name == k.HostEnd(salt) {
			return true
		}
	}
	return false
}

// FirstLinkIndex is the least that LinkIndex returns. The kernel counts links from 1, and does not get there.
const FirstLinkIndex = 1 << 30

// LinkIndex returns an index for the attachment's link in the container.
func (k Key) LinkIndex() int { return FirstLinkIndex | int(k.hash("link")%FirstLinkIndex) }

// MAC returns a locally administered unicast address that belongs to the attachment: the same key and use always get the same one.
func (k Key) MAC(use string) net.HardwareAddr {
	return MAC(use, k.Network, k.ContainerID, k.IfName)
}

// MAC returns a locally administered unicast address derived from texts.
func MAC(texts ...string) net.HardwareAddr {
	b := binary.BigEndian.AppendUint64(nil, hash(texts...))
	return net.HardwareAddr{0x02, b[3], b[4], b[5], b[6], b[7]}
}

func (k Key) hash(use string) uint64 {
	return hash(use, k.Network, k.ContainerID, k.IfName)
}

// hash is 64-bit FNV-1a over the texts, each preceded by its length so that ("ab", "c") and ("a", "bc") differ, with the finishing
// step of MurmurHash3: FNV alone leaves the upper bits of short texts nearly equal. Things on nodes are named by it, so it stays. It need
// not be cryptographic: who uses a hash to remove something compares the full key kept beside it.
func hash(texts ...string) uint64 {
	f := fnv.New64a()
	for _, t := range texts {
		f.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(t))), t...))
	}
	h := f.Sum64()
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// ValidateName refuses a container id or network name that is not ^[a-zA-Z0-9][a-zA-Z0-9_.-]*$ (libcni): they end up in file names,
// rules and links.
func ValidateName(s string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	for i, c := range s {
		if !strings.ContainsRune(letters, c) && (i == 0 || !strings.ContainsRune("_.-", c)) {
			return errors.New("it must start with a letter or digit and hold only letters, digits, '_', '.' and '-'")
		}
	}
	return nil
}
