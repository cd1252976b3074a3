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

	"github.com/vishvananda/netlink"
)

// object is one of what a program lists as JSON.
type object = map[string]any

// lists runs a program from the calling thread, and so in its namespaces, and returns the lists of objects that it prints.
func lists(input, program string, args ...string) (lists [][]object, err error) {
	cmd := exec.Command(program, args...)
	var stderr strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, stderr.String())
	}
	if strings.Contains(stderr.String(), "interrupted") { // what ip says of it, and go on
		return nil, fmt.Errorf("%s: %w", cmd, netlink.ErrDumpInterrupted)
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

// ipLists has one process of ip list several things: what takes time are processes.
func ipLists(things ...string) ([][]object, error) {
	lists, err := lists(strings.Join(things, "\n")+"\n", "ip", "-d", "-j", "-batch", "-")
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
	const timeout = 20 * time.Second
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		lines, same, err := interfaceLinesNow()
		if same && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return lines, err
		}
	}
	return nil, fmt.Errorf("links have come and gone for %v", timeout)
}

// interfaceLinesNow is interfaceLines without starting again. It reports whether the links are the same afterwards.
func interfaceLinesNow() (lines []string, same bool, err error) {
	is, err := ipLists("link show", "address show", "route show table all root 0.0.0.0/0", "route show table all root ::/0")
	if err != nil {
		return nil, true, err
	}
	links := map[string]int{}
	for _, link := range is[0] {
		links[link["ifname"].(string)] = int(link["ifindex"].(float64))
	}
	sysctls, err := sysctlLines(slices.AppendSeq([]string{"all", "default"}, maps.Keys(links)))
	v4, failed4 := ruleLines("ipv4", netlink.FAMILY_V4)
	v6, failed6 := ruleLines("ipv6", netlink.FAMILY_V6)
	qdiscs, failed := qdiscLines()
	now, failedLinks := netlink.LinkList()
	lines = slices.Concat(linkLines(is[0]), addressLines(is[1]), routeLines("ipv4", is[2]), routeLines("ipv6", is[3]), sysctls, v4, v6, qdiscs)
	return lines, sameLinks(links, now), errors.Join(err, failed4, failed6, failed, failedLinks)
}

// sameLinks compares the indexes of links by name with links that are listed later.
func sameLinks(indexes map[string]int, now []netlink.Link) bool {
	later := map[string]int{}
	for _, link := range now {
		later[link.Attrs().Name] = link.Attrs().Index
	}
	return maps.Equal(indexes, later)
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

func ruleLines(name string, family int) (lines []string, err error) {
	rules, err := netlink.RuleList(family)
	for _, r := range rules {
		o, err := fields(r)
		if err != nil {
			return nil, err
		}
		o["Src"], o["Dst"] = fmt.Sprint(r.Src), fmt.Sprint(r.Dst)
		maps.DeleteFunc(o, func(_ string, value any) bool { return value == -1.0 || value == "<nil>" }) // not set
		lines = append(lines, describe(fmt.Sprintf("rule %s %d:", name, r.Priority), o, "Family", "Priority", "Protocol"))
	}
	return lines, err
}

// qdiscLines describes the qdiscs of all links, but for handles, which are the kernel's choice, and counters.
func qdiscLines() (lines []string, err error) {
	qdiscs, err := netlink.QdiscList(nil)
	for _, q := range qdiscs {
		o, err := fields(q)
		if err != nil {
			return nil, err
		}
		o["kind"], o["Parent"] = q.Type(), netlink.HandleStr(q.Attrs().Parent)
		link, err := netlink.LinkByIndex(q.Attrs().LinkIndex)
		if err != nil {
			continue // the link has gone meanwhile
		}
		lines = append(lines, describe(fmt.Sprintf("qdisc %s:", link.Attrs().Name), o, "LinkIndex", "Handle", "Refcnt", "QdiscType", "Statistics"))
	}
	return lines, err
}

// fields returns the fields of a struct by their names.
func fields(value any) (o object, err error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &o)
	return o, err
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
