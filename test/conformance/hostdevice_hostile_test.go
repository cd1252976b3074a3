package conformance

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/netlab"
)

// act is what a container, which may change all of its own network, does with a device before it is detached.
type act struct {
	name string
	// want is what comes of the device as long as the namespace is there: it comes back, or the call fails and all is kept until the
	// namespace is gone, or the device was deleted and is none any more.
	want string
	// do is commands of ip, a line for each. In them MAC is the device's address, INDEX its index in the container, HOST the node's
	// namespace, and SUB another namespace of the container.
	do string
	// more is what follows.
	more func(d *detachment) error
	// escaped is set if the device is on the node before the namespace ends.
	escaped bool
	needs   *netlab.Feature
}

const (
	isBack, isKept, isGone = "back", "kept", "gone"

	// hide gives the device another name, another MAC address and no alias.
	hide = "link set eth0 down\nlink set eth0 name net7 alias x address 02:45:00:00:00:77\n"
)

var acts = slices.Concat([]act{
	{name: "changes nothing", want: isBack},
	{name: "renames it", want: isBack, do: "link set eth0 down\nlink set eth0 name net7"},
	{name: "gives it another alias", want: isBack, do: "link set eth0 alias nic7"},
	{name: "gives it the alias of another link of the host", want: isBack, do: "link set eth0 alias lan0"},
	{name: "sets it down, and changes MAC address and MTU", want: isBack, do: "link set eth0 down address 02:45:00:00:00:66 mtu 1280"},
	{name: "changes name, alias and MAC address", want: isBack, do: hide},
	{name: "changes flags, group and queue", want: isBack, do: "link set eth0 promisc on allmulticast on arp off multicast off group 7 txqlen 77"},
	{name: "gives it an alternative name that a bridge may want", want: isBack, do: "link property add dev eth0 altname cni0"},
	{name: "gives it its own name as alternative name", want: isBack, do: "link property add dev eth0 altname nic0"},
	{name: "gives it names of the host's links, and more", want: isBack,
		do: "link property add dev eth0 altname lan0 altname lanalt altname docker0 altname a-name-that-is-longer-than-others"},
	{name: "takes its alternative name", want: isBack, do: "link property del dev eth0 altname nic0alt"},
	{name: "gives its alternative name to another link", want: isBack,
		do: "link property del dev eth0 altname nic0alt\nlink add b0 type bridge\nlink property add dev b0 altname nic0alt"},
	{name: "makes it the port of a bridge", want: isBack, do: "link add b0 type bridge\nlink set b0 up\nlink set eth0 master b0"},
	{name: "makes macvlans and a vxlan on it", want: isBack, do: "link add m0 link eth0 type macvlan mode bridge\nlink set m0 up\n" +
		"link add m1 link m0 type macvlan\nlink add v0 type vxlan id 5 dev eth0 dstport 4789"},
	{name: "makes a macvlan on it that has the index of its other end", want: isBack, do: "link add m0 index PEER link eth0 type macvlan mode bridge\nlink set m0 up"},
	{name: "gives it addresses, routes and rules", want: isBack, do: "address add 10.1.2.3/8 dev eth0\naddress add fd01::1/64 dev eth0\n" +
		"route add 10.99.0.0/16 dev eth0 table 99\nrule add from all table 99\nneigh add 10.1.2.4 lladdr 02:00:00:00:00:01 dev eth0"},
	{name: "filters its packets", want: isBack, more: filterPackets},
	{name: "has an XDP program on it", want: isBack, needs: &netlab.BPF, more: func(d *detachment) error { return attachXDP(d, 0) }},
	{name: "has an XDP program on it, without its driver", want: isBack, needs: &netlab.BPF, more: func(d *detachment) error { return attachXDP(d, unix.XDP_FLAGS_SKB_MODE) }},
	{name: "renames lo to its name, and it to lo", want: isBack, do: "link set eth0 down\nlink set lo down\nlink set lo name l0\nlink set eth0 name lo\n" +
		"link set l0 name eth0\nlink set eth0 alias nic0"},
	{name: "gives lo its names", want: isBack, do: "link set lo alias nic0\nlink property add dev lo altname nic0"},
	{name: "says that lo is it, and takes its names", want: isBack,
		do: hide + "link set lo down\nlink set lo name eth0\nlink set eth0 alias nic0 address MAC"},
	{name: "swaps it with another device, by names, aliases and MAC addresses", want: isBack, do: "link set eth0 down\nlink set net1 down\n" +
		"link set eth0 name x0\nlink set net1 name eth0\nlink set x0 name net1\nlink set eth0 alias nic0\nlink set net1 alias nic1\n" +
		"link set net1 address 02:45:00:00:00:01\nlink set eth0 address MAC"},
	{name: "swaps it with another device, by indexes, names and aliases", want: isBack,
		do: "link set eth0 alias nic1 netns SUB\nlink set net1 alias nic0 netns SUB", more: func(d *detachment) error {
			return errors.Join(d.fetch("eth0", "net1", d.index+1), d.fetch("net1", "eth0", d.index))
		}},
	{name: "moves it to another namespace and back, as another index", want: isBack, do: "link set eth0 netns SUB",
		more: func(d *detachment) error { return d.fetch("eth0", "net9", 4711) }},
	{name: "moves it to another namespace", want: isKept, do: "link set eth0 netns SUB"},
	{name: "moves it to another namespace, and has a link of its name, alias, MAC address and index", want: isKept,
		do: "link set eth0 netns SUB\nlink add index INDEX name eth0 address MAC type veth peer name other\nlink set eth0 alias nic0\nlink set other up"},
	{name: "moves it to another namespace, and has a link there that goes to one like it", want: isKept,
		do: "link set eth0 netns SUB\nlink add index INDEX name eth0 address MAC type veth peer name other netns SUB\nlink set eth0 alias nic0"},
	{name: "deletes it", want: isGone, do: "link del eth0"},
	{name: "deletes it, and has a link like it", want: isGone,
		do: "link del eth0\nlink add index INDEX name eth0 address MAC type veth peer name other\nlink set eth0 alias nic0"},
	{name: "moves it back itself", want: isBack, escaped: true, do: "link set eth0 netns HOST"},
	{name: "moves it back itself, under the name of a bridge, without an alias", want: isBack, escaped: true,
		do: hide + "link set net7 alias y\nlink property add dev net7 altname docker0\nlink set net7 netns HOST name cni0"},
	{name: "moves it back itself, and has a link like it", want: isBack, escaped: true,
		do: "link set eth0 netns HOST name dev9\nlink add index INDEX name eth0 address MAC type veth peer name other\nlink set eth0 alias nic0"},
}, forgeries())

// forgeries have links of some kinds pass for the device, which looks like none.
func forgeries() (list []act) {
	for kind, add := range map[string]string{
		"veth":                      "link add eth0 address MAC type veth peer name other\nlink set other up",
		"veth that leads elsewhere": "link add eth0 address MAC type veth peer name other netns SUB",
		"macvlan":                   "link add b0 type bridge\nlink add eth0 link b0 address MAC type macvlan",
		"macvlan of itself":         "link add eth0 link net7 address MAC type macvlan mode bridge",
		"bridge":                    "link add eth0 address MAC type bridge",
		"tap":                       "tuntap add eth0 mode tap\nlink set eth0 address MAC",
		"ifb":                       "link add eth0 address MAC type ifb",
		"vxlan":                     "link add eth0 address MAC type vxlan id 7 dstport 4789",
	} {
		list = append(list, act{name: "has a " + kind + " with its name, alias, MAC address and names", want: isBack,
			do: hide + "link property del dev net7 altname nic0alt\n" + add + "\nlink set eth0 alias nic0\n" +
				"link property add dev eth0 altname nic0alt altname nic0\nlink set eth0 up"})
	}
	slices.SortFunc(list, func(a, b act) int { return strings.Compare(a.name, b.name) })
	return list
}

// detachment is a container that has nic0 as eth0, and nic1 as net1, and is going to be detached.
type detachment struct {
	*container
	second *container        // the same, for net1
	sub    *container        // another namespace that it has
	index  int               // of eth0
	before map[string]string // the node's links
}

// detach attaches a container to two devices that are new, and has it act.
func (l *lab) detach(a act, name, mac string) *detachment {
	for device, own := range map[string]string{"0": mac, "1": "02:45:00:00:00:01"} {
		l.run("ip link add nic"+device+" address "+own+" type veth peer name wire"+device, "ip link set nic"+device+" up alias uplink",
			"ip link property add dev nic"+device+" altname nic"+device+"alt")
	}
	before := l.links()
	d := &detachment{container: l.attach(deviceWith("ipam", pool), name), sub: l.pod("sub-" + name), before: before}
	d.second = d.attach(deviceWith("device", `"nic1"`).called("lan1"), "net1")
	d.index = l.attributes(&d.Namespace, "eth0").Index
	do := a.do
	if !netlab.Has(l, netlab.MovingAltNames) {
		do = altNameTaken.ReplaceAllString(do, "") // as the container can't
	}
	d.Feed(l, strings.NewReplacer("MAC", mac, "INDEX", fmt.Sprint(d.index), "PEER", fmt.Sprint(l.attributes(&l.host.Namespace, "wire0").Index),
		"HOST", l.host.NetnsPath(), "SUB", d.sub.Path()).Replace(do)+"\n", "ip", "-batch", "-")
	if a.more != nil {
		l.must(a.more(d))
	}
	return d
}

// fetch moves a link of the container's other namespace to the container, where it gets a name and an index.
func (d *detachment) fetch(name, as string, index int) (err error) {
	d.sub.Do(func() {
		var l netlink.Link
		if l, err = netlink.LinkByName(name); err != nil {
			return
		}
		to, failed := os.Open(d.Path())
		if err = failed; err != nil {
			return
		}
		defer to.Close()
		request, message := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK), nl.NewIfInfomsg(unix.AF_UNSPEC)
		message.Index = int32(l.Attrs().Index)
		request.AddData(message)
		request.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(to.Fd()))))
		request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(as)))
		request.AddData(nl.NewRtAttr(unix.IFLA_NEW_IFINDEX, nl.Uint32Attr(uint32(index))))
		_, err = request.Execute(unix.NETLINK_ROUTE, 0)
	})
	return err
}

var altNameTaken = regexp.MustCompile(`(?m)^link property del .*\n?`)

// remove removes what is left.
func (d *detachment) remove() {
	for _, device := range []string{"nic0", "nic1", "wire0", "wire1"} {
		if d.lab.attributes(&d.lab.host.Namespace, device) != nil {
			d.lab.run("ip link del " + device)
		}
	}
	d.lab.clear("/run/cnibox/host-device")
}

// filterPackets drops what the device receives, by tc.
func filterPackets(d *detachment) error {
	d.run("tc qdisc add dev eth0 ingress")
	d.run("tc filter add dev eth0 parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev net1")
	return nil
}

// attachXDP has a program drop what the device receives.
func attachXDP(d *detachment, flags int) (err error) {
	d.Do(func() {
		var l netlink.Link
		if l, err = netlink.LinkByName("eth0"); err != nil {
			return
		}
		fd, wrong := netlab.LoadXDP()
		if err = wrong; err != nil {
			return
		}
		defer unix.Close(fd)
		err = netlink.LinkSetXdpFdWithFlags(l, fd, flags)
	})
	return err
}

// links describes the node's links, by their names.
func (l *lab) links() map[string]string {
	all := map[string]string{}
	for _, link := range l.decode(l.run("ip -d -j link show")) {
		line := ""
		for _, field := range []string{"address", "mtu", "ifalias", "altnames", "flags", "group", "txqlen", "master", "link", "xdp"} {
			if field == "altnames" && !netlab.Has(l, netlab.MovingAltNames) {
				continue // such a kernel lists names that nobody finds a device by
			}
			if flags, ok := link[field].([]any); ok && field == "flags" {
				link[field] = slices.DeleteFunc(flags, func(flag any) bool { return slices.Contains([]any{"LOWER_UP", "NO-CARRIER", "M-DOWN"}, flag) })
			}
			line += fmt.Sprintf("%s %v ", field, link[field])
		}
		info, _ := link["linkinfo"].(map[string]any)
		all[link["ifname"].(string)] = fmt.Sprint(info["info_kind"], " ", line)
	}
	return all
}

// detached makes sure that a container was detached as it should be.
func (l *lab) detached(before map[string]string, err error, want string, virtual bool) {
	gone := map[string][]string{isKept: {"nic0", "wire0"}, isGone: {"nic0", "wire0"}}[want]
	now := l.links()
	if want == isKept {
		delete(now, "wire0") // its other end is elsewhere
	}
	if virtual {
		gone = append(gone, "nic1", "wire1")
	}
	before = maps.Clone(before)
	maps.DeleteFunc(before, func(name, _ string) bool { return slices.Contains(gone, name) })
	l.same(now, before)
	leases, notes := len(l.files("/var/lib/cni/networks/lan/1*")), len(l.files("/run/cnibox/host-device/*"))
	if want == isKept {
		l.refused(err, "nic0")
		l.same([]int{leases, notes}, []int{1, 1})
		return
	}
	l.must(err)
	l.same([]int{leases, notes}, []int{0, 0})
}

// leadsTo makes sure that no link of the container is made on one of the node's.
func (d *detachment) leadsTo(name string) {
	index := d.lab.link(&d.lab.host.Namespace, name)["ifindex"]
	for _, link := range d.lab.decode(d.run("ip -j link show")) {
		if link["link_index"] == index && link["link_netnsid"] != nil {
			d.lab.Errorf("%v of the container is made on %s of the host", link["ifname"], name)
		}
	}
}

// deviceActs tries each act with DEL and GC, with and without a result, while the namespace is there and when it is gone.
func deviceActs() (rows []row) {
	for _, a := range acts {
		rows = append(rows, row{name: "the host gets its device back or an error, and nothing else, though the container " + a.name,
			differs: "it takes what has the interface's name, and has no GC", needs: a.needs, test: func(l *lab) {
				l.run("ip link add lan0 type bridge", "ip link property add dev lan0 altname lanalt")
				l.warmPool()
				ipam, second := deviceWith("ipam", pool), deviceWith().called("lan1")
				for i, call := range []struct {
					name        string
					forget, end bool
					do          func(d *detachment) error
				}{
					{name: "DEL", do: func(d *detachment) error { return errors.Join(d.del(), d.second.del()) }},
					{name: "DEL without a result", forget: true, do: func(d *detachment) error { return errors.Join(d.del(), d.second.del()) }},
					{name: "DEL without the path", forget: true, do: func(d *detachment) error { return errors.Join(d.delBare(), d.second.delBare()) }},
					{name: "GC", do: func(*detachment) error { return errors.Join(l.gc(ipam), l.gc(second)) }},
					{name: "DEL with the namespace gone", end: true, do: func(d *detachment) error { return errors.Join(d.del(), d.second.del()) }},
					{name: "GC with the namespace gone", end: true, do: func(*detachment) error { return errors.Join(l.gc(ipam), l.gc(second)) }},
				} {
					if netlab.LeftOut(l, i, 3) {
						continue
					}
					d := l.detach(a, fmt.Sprint("web", i), fmt.Sprintf("02:45:00:00:01:%02x", i))
					want := a.want
					if call.end {
						d.sub.Delete(l)
						d.Delete(l)
						if !a.escaped {
							want = isGone
						}
					}
					if call.forget {
						l.forget()
					}
					err := call.do(d)
					l.detached(d.before, err, want, call.end)
					if want == isBack && !call.end {
						d.leadsTo("nic0")
					}
					if want == isKept { // until the namespace is gone
						d.sub.Delete(l)
						d.Delete(l)
						l.detached(d.before, call.do(d), isGone, false)
					}
					d.remove()
					l.stopIfFailed()
					l.Logf("%s: %s", call.name, want)
				}
			}})
	}
	return rows
}

// deviceRaces have a container go on to change its links while it is detached, until it ends.
func deviceRaces() (rows []row) {
	for _, c := range []struct{ name, prepare, loop string }{
		{name: "renames it", loop: "link set eth0 name a0\nlink set a0 name b0\nlink set b0 name eth0\n"},
		{name: "swaps its name with another link's", prepare: "link add f0 address MAC type veth peer name other",
			loop: "link set eth0 name t0\nlink set f0 name eth0\nlink set t0 name f0\nlink set f0 name t0\nlink set eth0 name f0\nlink set t0 name eth0\n"},
		{name: "gives it alternative names", loop: "link property add dev eth0 altname cni0\nlink property del dev eth0 altname cni0\n"},
	} {
		rows = append(rows, row{name: "the host gets its device back or an error, and nothing else, while the container " + c.name,
			differs: "it looks for the interface by its name", test: func(l *lab) {
				const tries = 5
				l.run("ip link add nic0 type veth peer name wire0")
				l.warmPool()
				mac := fmt.Sprint(l.link(&l.host.Namespace, "nic0")["address"])
				before := l.links()
				for i := range tries {
					web := l.attach(deviceWith("ipam", pool), fmt.Sprint("web", i))
					web.run("ip link set eth0 down")
					web.Feed(l, strings.ReplaceAll(c.prepare, "MAC", mac)+"\n", "ip", "-batch", "-")
					loop := web.Command("ip", "-force", "-batch", "-")
					loop.Stdin = &repeated{text: c.loop}
					l.must(web.Start(loop))
					netlab.Pause(10 * time.Millisecond)
					err := web.del()
					l.must(loop.Process.Kill())
					_ = loop.Wait() // which says that it was killed
					if err != nil {
						l.Logf("kept: %v", err)
						l.same(len(l.links()), len(before)-1)
						l.same([]int{len(l.files("/var/lib/cni/networks/lan/1*")), len(l.files("/run/cnibox/host-device/*"))}, []int{1, 1})
						l.must(web.del())
					}
					l.same(l.links(), before)
					l.stopIfFailed()
				}
			}})
	}
	return rows
}

// repeated is a text over and over again.
type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(to []byte) (n int, err error) {
	for n < len(to) {
		copied := copy(to[n:], r.text[r.at:])
		n, r.at = n+copied, (r.at+copied)%len(r.text)
	}
	return n, nil
}
