package dhcp

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// DefaultSocket is where the daemon listens.
const DefaultSocket = "/run/cni/dhcp.sock"

// Options are what a configuration asks for; docs/plugins/dhcp.md explains each key.
type Options struct {
	Socket     string
	IPv4, IPv6 bool
	Priority   int    // of routes; 0 is the kernel's
	Request    []byte // the codes of the options that the server is asked for (option 55)
	Provide    map[byte]string
}

// The codes of options that have a name (RFC 2132, RFC 3004).
var codes = map[string]byte{
	"subnet-mask": 1, "routers": 3, "host-name": 12, "vendor-class-identifier": 60, "dhcp-client-identifier": 61, "user-class": 77,
}

// usual are the options that are asked for unless the configuration says otherwise: routers, subnet mask, name servers, domain, search
// list and MTU. Not static routes (121): a server that sends them takes the default route away that it gives to others.
var usual = []byte{3, 1, 6, 15, 119, 26}

// mostValue is how many bytes an option can have.
const mostValue = 255

// Read reads what a configuration asks for. Values of CNI_ARGS are taken where it says so.
func Read(config *conf.Object, cniArgs string) (*Options, error) {
	if !config.Has("ipam") {
		return nil, plugin.ConfigError("add the object ipam with its type", "IPAM config missing 'ipam' key")
	}
	ipam := config.Object("ipam")
	o := &Options{Socket: readSocket(ipam), Provide: map[byte]string{}}
	if !filepath.IsAbs(o.Socket) {
		ipam.Fail("daemonSocketPath", "an absolute path", strconv.Quote(o.Socket))
	}
	o.readFamilies(ipam)
	ipam.Int("priority", &o.Priority)
	o.readRequest(ipam)
	o.readProvide(ipam, arguments(cniArgs))
	return o, config.Err()
}

func readSocket(ipam *conf.Object) (path string) {
	ipam.String("daemonSocketPath", &path)
	return cmp.Or(path, DefaultSocket)
}

// socketOf returns what DEL and GC need of a configuration.
func socketOf(r *plugin.Request) string {
	if path := readSocket(r.Config.Object("ipam")); filepath.IsAbs(path) {
		return path
	}
	return DefaultSocket
}

func (o *Options) readFamilies(ipam *conf.Object) {
	families := []string{"ipv4"}
	ipam.Strings("families", &families)
	for _, f := range families {
		switch f {
		case "ipv4":
			o.IPv4 = true
		case "ipv6":
			o.IPv6 = true
		default:
			ipam.Fail("families", "ipv4 and ipv6, or one of them", strconv.Quote(f))
		}
	}
	if len(families) == 0 {
		ipam.Fail("families", "ipv4 and ipv6, or one of them", "none")
	}
}

func (o *Options) readRequest(ipam *conf.Object) {
	skip := false
	ipam.Objects("request", func(e *conf.Object) {
		e.Bool("skipDefault", &skip)
		if e.Has("option") {
			o.request(readCode(e))
		}
	})
	if !skip {
		for _, code := range usual {
			o.request(code)
		}
	}
}

func (o *Options) request(code byte) {
	if !slices.Contains(o.Request, code) {
		o.Request = append(o.Request, code)
	}
}

func (o *Options) readProvide(ipam *conf.Object, args map[string]string) {
	ipam.Objects("provide", func(e *conf.Object) {
		code, value, from := readCode(e), "", ""
		e.String("value", &value)
		if e.String("fromArg", &from); args[from] != "" {
			value = args[from]
		}
		if len(value) > mostValue {
			e.Fail("value", fmt.Sprintf("at most %d bytes", mostValue), strconv.Itoa(len(value)))
		}
		if value != "" {
			o.Provide[code] = value
		}
	})
}

// readCode reads the key "option": a name, or a number.
func readCode(e *conf.Object) byte {
	name := ""
	e.String("option", &name)
	if code, ok := codes[name]; ok {
		return code
	}
	code, err := strconv.ParseUint(name, 10, 8)
	if err != nil || code == 0 || code == 255 { // these two are no options (RFC 2132)
		names := make([]string, 0, len(codes))
		for n := range codes {
			names = append(names, n)
		}
		slices.Sort(names)
		e.Fail("option", "a number from 1 to 254, or one of "+strings.Join(names, ", "), strconv.Quote(name))
	}
	return byte(code)
}

// arguments reads CNI_ARGS. Whatever a runtime sends there may be asked for, and none of it is an error.
func arguments(text string) map[string]string {
	values := map[string]string{}
	for pair := range strings.SplitSeq(text, ";") {
		key, value, _ := strings.Cut(pair, "=")
		values[key] = value
	}
	return values
}
