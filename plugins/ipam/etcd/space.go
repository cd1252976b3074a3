package etcd

import (
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// space is how the keys of one network are called in etcd:
//
//	PREFIX/NETWORK/hosts/HOST                                       which machine that is
//	PREFIX/NETWORK/ipv4/0a580007, …/ipv6/fd00…                      whose that address is
//	PREFIX/NETWORK/attachments/HOST/CONTAINER/INTERFACE/0a580007    since when it has that address
//	PREFIX/NETWORK/marks/HOST                                       that this host has taken an address, at that revision
//	PREFIX/NETWORK/past                                             that all that is in etcd up to that revision is of one past
//	PREFIX/NETWORK/restored                                         that etcd was restored, and hosts have yet to write back what they hold
//	PREFIX/NETWORK/ended/HOST/CONTAINER/INTERFACE/18a1b2c3d4e5f607  that the ADD is over which began then
//
// All keys of a host hang on one lease of etcd, and go with it, but for those in ended, which go after a day, and marks and past, which stay. An address is in
// hexadecimal digits, so that a range of addresses is a range of keys.
type space struct{ root string }

func newSpace(prefix, network string) space { return space{prefix + "/" + network + "/"} }

func (s space) host(name string) string { return s.root + "hosts/" + name }

func (s space) mark(host string) string { return s.root + "marks/" + host }

func (s space) past() string { return s.root + "past" }

func (s space) restoration() string { return s.root + "restored" }

func (s space) address(a netip.Addr) string {
	family := "ipv6/"
	if a.Is4() {
		family = "ipv4/"
	}
	return s.root + family + hex.EncodeToString(a.AsSlice())
}

// attachments is what all keys of a host's attachments begin with.
func (s space) attachments(host string) string { return s.root + "attachments/" + host + "/" }

// attachment is what the keys of all addresses of an attachment begin with.
func (s space) attachment(o owner) string {
	return s.attachments(o.Host) + o.ContainerID + "/" + o.IfName + "/"
}

func (s space) holds(o owner, a netip.Addr) string {
	return s.attachment(o) + hex.EncodeToString(a.AsSlice())
}

// parseHeld reads a key that holds has made for a host.
func (s space) parseHeld(host, key string) (o owner, a netip.Addr, ok bool) {
	part := strings.Split(strings.TrimPrefix(key, s.attachments(host)), "/")
	if len(part) != 3 {
		return o, a, false
	}
	digits, err := hex.DecodeString(part[2])
	a, ok = netip.AddrFromSlice(digits)
	return owner{host, part[0], part[1]}, a, ok && err == nil
}

// ended is the key that says that an ADD is over, which began at a time.
func (s space) ended(o owner, began time.Time) string {
	return s.root + "ended/" + o.Host + "/" + o.ContainerID + "/" + o.IfName + "/" + strconv.FormatInt(began.UnixNano(), 16)
}

// owner is who an address belongs to.
type owner struct {
	Host        string `json:"host"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

func (o owner) key(network string) plugin.Key {
	return plugin.Key{Network: network, ContainerID: o.ContainerID, IfName: o.IfName}
}

// String names an owner for people.
func (o owner) String() string {
	return "container " + o.ContainerID + ", interface " + o.IfName + ", on host " + o.Host
}

// addressValue is what is written of an address: whose it is. It is always the same, so that it can be compared.
type addressValue struct {
	Address netip.Addr `json:"address"`
	owner
}

func (o owner) value(a netip.Addr) string {
	text, _ := json.Marshal(addressValue{a, o})
	return string(text)
}

// parseOwner reads what is written of an address. A text that it can't read has no known owner.
func parseOwner(value []byte) (v addressValue) {
	_ = json.Unmarshal(value, &v)
	return v
}

func isAbsent(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }

func hasRevision(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision)
}

func hasValue(key, value string) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(key), "=", value)
}
