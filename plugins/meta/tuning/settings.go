package tuning

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"path"
	"slices"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/sysctl"
)

// settings is what a call asks for.
type settings struct {
	sysctls []setting
	values  values
}

// setting is one sysctl.
type setting struct {
	key   sysctl.Key
	value string
}

// readSettings puts together what the configuration, CNI_ARGS, runtimeConfig and args.cni say, each overriding what came before.
func readSettings(r *plugin.Request) (s settings, err error) {
	dir := ""
	r.Config.String("dataDir", &dir)
	if dir != "" && !path.IsAbs(dir) {
		return s, plugin.ConfigError("give an absolute path, or leave it out for "+defaultDataDir, "key %q: %q is no absolute path", "dataDir", dir)
	}
	if s.values, err = wantedValues(r); err != nil {
		return s, err
	}
	for _, o := range []*conf.Object{r.Config, args(r)} {
		own, err := readSysctls(o, r.IfName)
		if err != nil {
			return s, err
		}
		for _, n := range own {
			if i := find(s.sysctls, n.key); i >= 0 {
				s.sysctls[i] = n
			} else {
				s.sysctls = append(s.sysctls, n)
			}
		}
	}
	return s, r.Config.Err()
}

// wantedValues returns what the interface is to have. Promiscuous mode is only ever switched on, and an MTU of 0 is none.
func wantedValues(r *plugin.Request) (values, error) {
	wanted := readValues(r.Config)
	fromArgs, err := macFromCNIArgs(r.Args)
	wanted.override(values{mac: fromArgs})
	wanted.override(values{mac: readMAC(r.Config.Object("runtimeConfig"))})
	wanted.override(readValues(args(r)))
	if wanted[promisc] == "false" {
		wanted[promisc] = ""
	}
	if wanted[mtu] == "0" {
		wanted[mtu] = ""
	}
	return wanted, err
}

func args(r *plugin.Request) *conf.Object { return r.Config.Object("args").Object("cni") }

func macFromCNIArgs(text string) (string, error) {
	given, err := plugin.Arguments(text, "MAC")
	if err != nil || given["MAC"] == "" {
		return "", err
	}
	address, err := attach.ParseMAC(given["MAC"])
	if err != nil {
		return "", plugin.CodeErrorf(types.ErrInvalidEnvironmentVariables, "correct it where the container is started", "CNI_ARGS: MAC: %w", err)
	}
	return address.String(), nil
}

// find returns where a sysctl is in a list, -1 if it is not there.
func find(list []setting, key sysctl.Key) int {
	return slices.IndexFunc(list, func(s setting) bool { return s.key.Path() == key.Path() })
}

// readSysctls reads the object "sysctl" in o. Two keys for the same sysctl are an error: which one is to win can't be told.
func readSysctls(o *conf.Object, ifName string) (list []setting, err error) {
	o.Object("sysctl").StringMap(func(text, value string) {
		key, invalid := sysctl.ParseKey(text)
		if ifName != "" { // STATUS asks for no interface
			key = key.ForInterface(ifName)
		}
		same := find(list, key)
		switch {
		case err != nil:
		case invalid != nil:
			err = plugin.ConfigError("write it as net.ipv4.conf.IFNAME.arp_filter, or with slashes when names hold dots", "%s: %v", o.Path("sysctl"), invalid)
		case same >= 0:
			err = plugin.ConfigError("keep one of them", "%s: duplicated sysctl keys are not allowed: %s and %s", o.Path("sysctl"), list[same].key, key)
		}
		list = append(list, setting{key, value})
	})
	return list, err
}

// dataDir returns the directory of the files for DEL, the reference plugin's when what is configured can't be used.
func dataDir(c *conf.Object) string {
	dir := ""
	c.String("dataDir", &dir)
	if !path.IsAbs(dir) {
		return defaultDataDir
	}
	return path.Clean(dir)
}

const defaultDataDir = "/run/cni/tuning"

// result returns the previous result with what was changed of the container's interface.
func (s settings) result(r *plugin.Request) *types100.Result {
	result := r.PrevResult
	for _, f := range result.Interfaces {
		if f.Name == r.IfName && f.Sandbox != "" {
			f.Mac = cmp.Or(s.values[mac], f.Mac)
			if n, err := strconv.Atoi(s.values[mtu]); err == nil {
				f.Mtu = n
			}
		}
	}
	return result
}

// values are those of a link's attributes, as people and the file for DEL write them. "" is not given: on ADD it stays as it is, in the
// file it was not recorded.
type values [5]string

const (
	mac = iota
	promisc
	mtu
	allmulti
	txQLen
)

// names are the attributes' keys in the configuration and in the file for DEL, in the order in which they are changed and recorded.
var names = [len(values{})]string{mac: "mac", promisc: "promisc", mtu: "mtu", allmulti: "allmulti", txQLen: "txQLen"}

// valueOf returns what a link has of an attribute.
func valueOf(l *netlink.LinkAttrs, attribute int) string {
	switch attribute {
	case mac:
		return l.HardwareAddr.String()
	case promisc:
		return strconv.FormatBool(l.RawFlags&unix.IFF_PROMISC != 0)
	case mtu:
		return strconv.Itoa(l.MTU)
	case allmulti:
		return strconv.FormatBool(l.RawFlags&unix.IFF_ALLMULTI != 0)
	}
	return strconv.Itoa(l.TxQLen)
}

// set gives a link a value of an attribute.
func set(links *netlink.Handle, l netlink.Link, attribute int, value string) error {
	number, _ := strconv.Atoi(value) // what is none is none of mtu and txQLen
	switch {
	case attribute == mac:
		address, err := net.ParseMAC(value)
		if err != nil {
			return err
		}
		return links.LinkSetHardwareAddr(l, address)
	case attribute == promisc && value == "true":
		return links.SetPromiscOn(l)
	case attribute == promisc:
		return links.SetPromiscOff(l)
	case attribute == mtu:
		return links.LinkSetMTU(l, number)
	case attribute == allmulti && value == "true":
		return links.LinkSetAllmulticastOn(l)
	case attribute == allmulti:
		return links.LinkSetAllmulticastOff(l)
	}
	return links.LinkSetTxQLen(l, number)
}

// override replaces the values that others gives.
func (v *values) override(others values) {
	for i, value := range others {
		if value != "" {
			v[i] = value
		}
	}
}

// valuesOf returns what the link has of the attributes that like gives.
func valuesOf(l netlink.Link, like values) (v values) {
	for i := range like {
		if like[i] != "" {
			v[i] = valueOf(l.Attrs(), i)
		}
	}
	return v
}

// findInterface returns the attachment's interface, nil when nothing of it is wanted. It is called in the namespace.
func findInterface(links *netlink.Handle, r *plugin.Request, wanted values) (netlink.Link, error) {
	if wanted == (values{}) {
		return nil, nil
	}
	l, err := links.LinkByName(r.IfName)
	if link.IsNotFound(err) {
		return nil, plugin.Errorf("tuning changes the interface that the runtime names in CNI_IFNAME: a plugin before it must have made it", "%s has no interface %q", r.Netns, r.IfName)
	}
	return l, err
}

func attributeError(remedy string, r *plugin.Request, name, value string, err error) error {
	return plugin.Errorf(remedy, "set %s of %s in %s to %s: %w", name, r.IfName, r.Netns, value, err)
}

// The MTUs that are of any use, in bytes: IPv4's smallest (RFC 791), and that of the loopback link. A kind of link can have narrower bounds.
const leastMTU, mostMTU = 68, 65536

// readValues reads the keys of the configuration, of args.cni, or of the file for DEL. A value that no link can have is an error or, where
// errors don't count, not given.
func readValues(o *conf.Object) values {
	return values{
		mac: readMAC(o), promisc: readSwitch(o, "promisc"), allmulti: readSwitch(o, "allmulti"),
		mtu: readNumber(o, "mtu", "bytes", leastMTU, mostMTU), txQLen: readNumber(o, "txQLen", "packets", 0, math.MaxInt32),
	}
}

func readMAC(o *conf.Object) string {
	text := ""
	o.String("mac", &text)
	if text == "" {
		return ""
	}
	address, err := attach.ParseMAC(text)
	if err != nil {
		o.Fail("mac", "the MAC address of one interface, such as 02:00:00:12:34:56", strconv.Quote(text))
	}
	return address.String()
}

func readSwitch(o *conf.Object, key string) string {
	var on *bool
	if o.OptionalBool(key, &on); on == nil {
		return ""
	}
	return strconv.FormatBool(*on)
}

func readNumber(o *conf.Object, key, unit string, least, most int) string {
	var n *int
	if o.OptionalInt(key, &n); n == nil {
		return ""
	}
	if *n != 0 && (*n < least || *n > most) {
		o.Fail(key, fmt.Sprintf("a number of %s from %d to %d", unit, least, most), strconv.Itoa(*n))
	}
	if *n < 0 || *n > math.MaxInt32 {
		return ""
	}
	return strconv.Itoa(*n)
}
