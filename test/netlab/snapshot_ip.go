package netlab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// object is one of what a program lists as JSON.
type object = map[string]any

// errInterrupted is that something changed while it was being listed.
var errInterrupted = errors.New("the list was interrupted")

// lists runs a program from the calling thread, and so in its namespaces, and returns the lists of objects that it prints.
func lists(input, program string, args ...string) (lists [][]object, err error) {
	cmd := exec.Command(program, args...)
	var stderr strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, stderr.String())
	}
	if strings.Contains(stderr.String(), "interrupted") { // what ip and tc say of it, and go on
		return nil, fmt.Errorf("%s: %w", cmd, errInterrupted)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var objects []object
		if err := decoder.Decode(&objects); err != nil {
			return nil, fmt.Errorf("decode what %s prints: %w", cmd, err)
		}
		lists = append(lists, objects)
	}
	return lists, nil
}

// list returns the list that a program prints.
func list(command string) ([]object, error) {
	words := strings.Fields(command)
	lists, err := lists("", words[0], words[1:]...)
	return slices.Concat(lists...), err
}

// ipLists has one process of ip, with the option of a family, list several things: what takes time are processes.
func ipLists(option string, things ...string) ([][]object, error) {
	lists, err := lists(strings.Join(things, "\n")+"\n", "ip", option, "-d", "-j", "-batch", "-")
	if err == nil && len(lists) != len(things) {
		err = fmt.Errorf("ip lists %q in %d lists", things, len(lists))
	}
	return lists, err
}

// describe is a line about an object: name and value of each thing that is known of it, but for the names left out.
func describe(prefix string, o object, leftOut ...string) string {
	var line strings.Builder
	line.WriteString(prefix)
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if slices.Contains(leftOut, name) {
			continue
		}
		value, err := json.Marshal(o[name])
		if err != nil {
			panic(err) // can't be: it comes from JSON
		}
		switch text := strings.Trim(string(value), `"`); text {
		case "", "0", "false", "null", "[]", "{}":
		case "true":
			line.WriteString(" " + name)
		default:
			line.WriteString(" " + name + " " + text)
		}
	}
	return line.String()
}

// interfaceLines describes the links and what belongs to them. It starts again if links have come or gone meanwhile: a part
// of one would look like something that was left behind, and what has gone can't be read.
func interfaceLines() ([]string, error) {
	const patience = 20 * time.Second
	for end := time.Now().Add(patience); time.Now().Before(end); {
		lines, same, err := interfaceLinesNow()
		if same && !errors.Is(err, errInterrupted) {
			return lines, err
		}
	}
	return nil, fmt.Errorf("links have come and gone for %v", patience)
}

// interfaceLinesNow is interfaceLines without starting again. It reports whether the links are the same afterwards.
func interfaceLinesNow() (lines []string, same bool, err error) {
	v4, err := ipLists("-4", "link show", "address show", "route show table all", "rule show")
	if err != nil {
		return nil, true, err
	}
	links := indexes(v4[0])
	sysctls, err := sysctlLines(slices.AppendSeq([]string{"all", "default"}, maps.Keys(links)))
	qdiscs, failed := list("tc -j qdisc show")
	err = errors.Join(err, failed)
	v6, failed := ipLists("-6", "address show", "route show table all", "rule show", "link show")
	if failed != nil {
		return nil, true, errors.Join(err, failed)
	}
	lines = slices.Concat(linkLines(v4[0]), sysctls, qdiscLines(qdiscs), addressLines(v4[1]), addressLines(v6[0]),
		routeLines("ipv4", v4[2]), routeLines("ipv6", v6[1]), ruleLines("ipv4", v4[3]), ruleLines("ipv6", v6[2]))
	return lines, maps.Equal(links, indexes(v6[3])), err
}

// indexes returns the indexes of links by name.
func indexes(links []object) map[string]any {
	of := map[string]any{}
	for _, link := range links {
		of[link["ifname"].(string)] = link["ifindex"]
	}
	return of
}

// linkFields are what tests look at of a link; the rest changes with the carrier, with time or with the kernel.
var linkFields = []string{
	"up", "noarp", "promisc", "allmulti", "mtu", "txqlen", "address", "group", "master", "ifalias", "altnames", "info_kind",
	"vlan_filtering", "vlan_default_pvid", "mcast_snooping", "hairpin", "isolated", "guard",
}

func linkLines(links []object) (lines []string) {
	for _, link := range links {
		name := link["ifname"].(string)
		flags, _ := link["flags"].([]any)
		for _, flag := range flags {
			link[strings.ToLower(flag.(string))] = true
		}
		info, _ := link["linkinfo"].(object)
		maps.Copy(link, info)
		for _, of := range []string{"info_data", "info_slave_data"} {
			data, _ := info[of].(object)
			maps.Copy(link, data)
		}
		maps.DeleteFunc(link, func(field string, _ any) bool { return !slices.Contains(linkFields, field) })
		lines = append(lines, describe("link "+name+":", link))
	}
	return lines
}

func addressLines(links []object) (lines []string) {
	for _, link := range links {
		addresses, _ := link["addr_info"].([]any)
		for _, a := range addresses {
			a := a.(object)
			if a["family"] == "inet6" && a["scope"] == "link" {
				continue
			}
			lines = append(lines, describe(fmt.Sprintf("address %s: %s/%v", link["ifname"], a["local"], a["prefixlen"]), a,
				"family", "local", "prefixlen", "tentative", "valid_life_time", "preferred_life_time"))
		}
	}
	return lines
}

func routeLines(family string, routes []object) (lines []string) {
	for _, r := range routes {
		// The kernel adds and removes these with an IPv6 link-local address or with the carrier of the link. It makes the
		// local route of an IPv6 address some time after the address, which has a line itself.
		dst := r["dst"].(string)
		ofKernel := r["table"] == "local" && r["protocol"] == "kernel" || strings.HasPrefix(dst, "fe80:") || strings.HasPrefix(dst, "ff")
		if family == "ipv6" && ofKernel {
			continue
		}
		hops, _ := r["nexthops"].([]any)
		for _, hop := range hops {
			delete(hop.(object), "flags")
		}
		flags, _ := r["flags"].([]any)
		r["onlink"] = slices.Contains(flags, any("onlink"))
		lines = append(lines, describe("route "+family+" "+dst, r, "dst", "flags", "expires"))
	}
	return lines
}

func ruleLines(family string, rules []object) (lines []string) {
	for _, r := range rules {
		lines = append(lines, describe(fmt.Sprintf("rule %s %v:", family, r["priority"]), r, "priority", "protocol"))
	}
	return lines
}

func qdiscLines(qdiscs []object) (lines []string) {
	for _, q := range qdiscs {
		lines = append(lines, describe(fmt.Sprintf("qdisc %s:", q["dev"]), q, "dev", "handle", "refcnt"))
	}
	return lines
}

// sysctlsOf are the per-interface sysctls that CNI plugins change, by family.
var sysctlsOf = map[string][]string{
	"ipv4": {"accept_local", "arp_ignore", "arp_notify", "forwarding", "proxy_arp", "route_localnet", "rp_filter"},
	"ipv6": {"accept_dad", "accept_ra", "autoconf", "disable_ipv6", "forwarding", "proxy_ndp"},
}

func sysctlLines(links []string) (lines []string, err error) {
	for family, keys := range sysctlsOf {
		for _, link := range links {
			dir := "/proc/sys/net/" + family + "/conf/" + link + "/"
			if _, err := os.Stat(dir); err != nil {
				continue // the link has gone meanwhile, or has no such family
			}
			line := "sysctl " + family + " " + link + ":"
			for _, key := range keys {
				value, failed := os.ReadFile(dir + key)
				err = errors.Join(err, failed)
				line += " " + key + "=" + strings.TrimSpace(string(value))
			}
			lines = append(lines, line)
		}
	}
	return lines, err
}
