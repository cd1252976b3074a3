package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/runtimes"
	"github.com/cnibox/cnibox/pkg/plugin"
)

var (
	refused = codes.Declare(finding.Code{Name: "refused", Severity: finding.Error,
		Meaning: "The plugin refuses its configuration for another reason, which the message says.",
		Remedy:  "what the message says"})
	typeMissing = codes.Declare(finding.Code{Name: "type-missing", Severity: finding.Error,
		Meaning: "A plugin or `ipam` has no `type`, so nobody knows what to run.",
		Remedy:  "`type`"})
	wrongKind = codes.Declare(finding.Code{Name: "wrong-kind", Severity: finding.Error,
		Meaning: "An IPAM plugin stands in the list, or another plugin in `ipam`.",
		Remedy:  "a plugin of the other kind"})
	wrongType = codes.Declare(finding.Code{Name: "wrong-type", Severity: finding.Error, Fixable: true,
		Meaning: "A value has the wrong JSON type, such as a string in place of a number.",
		Remedy:  "a value of the right type"})
	misspelledPlugin = codes.Declare(finding.Code{Name: "misspelled-plugin", Severity: finding.Warning,
		Meaning: "There is no such plugin in cnibox, but one with a name much like it.",
		Remedy:  "the plugin's name"})
	unknownPlugin = codes.Declare(finding.Code{Name: "unknown-plugin", Severity: finding.Info,
		Meaning: "The plugin is not one of cnibox. Its keys are not checked."})
)

// likeOurs are others' plugins whose names are much like those of our plugins, and no mistakes.
var likeOurs = []string{"egress-cni", "macvtap", "vxlan"}

// checkPlugin looks at the type: whether it is known, and whether it may stand there.
func (f *file) checkPlugin(p *part, isIPAM bool) {
	t := p.get("type")
	switch {
	case t != nil && t.kind != '"':
		f.report(wrongType, t.span, "", nil, "\"type\" has to be a string, and is %s", t.describe())
	case p.named == "":
		f.report(typeMissing, p.typed, `"type": "…"`, nil, "there is no \"type\": nobody knows which plugin to run")
	case strings.Contains(p.named, "/"):
		f.report(refused, p.typed, strconv.Quote(p.named[strings.LastIndexByte(p.named, '/')+1:]), nil, "a type is the name of a file, without its directory")
	case p.plugin == nil:
		if like := nearestWord(p.named, f.kinds(isIPAM)); like != "" && f.options.Plugins.Find(p.named) == nil && !slices.Contains(likeOurs, p.named) {
			f.report(misspelledPlugin, p.typed, strconv.Quote(like), nil, "cnibox has no plugin %q; did you mean %q?", shorten(p.named), like)
		} else {
			f.report(unknownPlugin, p.typed, "", nil, "%q is no plugin of cnibox: its keys are not checked", shorten(p.named))
		}
	case isIPAM && p.plugin.Kind != plugin.IPAM:
		f.report(wrongKind, p.typed, "one of "+strings.Join(f.kinds(true), ", "), nil, "%s hands out no addresses: it can't be in \"ipam\"", p.kind)
	case !isIPAM && p.plugin.Kind == plugin.IPAM:
		f.report(wrongKind, p.typed, fmt.Sprintf(`"ipam": {"type": %q, …} in a plugin that makes an interface`, p.named), nil, "%s hands out addresses: it can't be in the list", p.kind)
	}
}

// kinds returns the names of the plugins that may stand somewhere.
func (f *file) kinds(isIPAM bool) (names []string) {
	for _, row := range f.options.Plugins {
		if (row.Kind == plugin.IPAM) == isIPAM {
			names = append(names, row.Name)
		}
	}
	return names
}

// checkChain looks at the plugins' order, and at what one of them needs of another.
func (f *file) checkChain() {
	f.checkOrder(f.network.chain, nil)
	for _, p := range f.network.all() {
		f.checkExclusive(p)
		f.checkAddressUse(p)
	}
}

var (
	chainedFirst = codes.Declare(finding.Code{Name: "chained-first", Severity: finding.Error,
		Meaning: "This plugin changes what one before it has made, and stands first: ADD fails.",
		Remedy:  "a plugin that makes an interface before it"})
	ipamMissing = codes.Declare(finding.Code{Name: "ipam-missing", Severity: finding.Error,
		Meaning: "The plugin can't work without addresses: ADD fails.",
		Remedy:  "`ipam` with a `type`"})
	secondMain = codes.Declare(finding.Code{Name: "second-main", Severity: finding.Error,
		Meaning: "A second plugin wants to make the container's interface, which is there already: ADD fails.",
		Remedy:  "one of the two in a network of its own"})
	hostAside = codes.Declare(finding.Code{Name: "host-aside", Severity: finding.Error,
		Meaning: "The plugin works on what passes the host, and the host does not see what this interface sends: ADD fails.",
		Remedy:  "bridge or ptp in place of the plugin that makes the interface"})
)

func (f *file) checkOrder(chain, before []*part) {
	for i, p := range chain {
		earlier := append(slices.Clone(before), chain[:i]...)
		made := slices.IndexFunc(earlier, func(e *part) bool { return e.facts.MakesInterface })
		switch {
		case p.plugin != nil && p.plugin.Chained && len(earlier) == 0:
			f.report(chainedFirst, p.typed, "a plugin that makes an interface, such as bridge, before it", nil, "%s changes what a plugin before it has made, and is the first", p.kind)
		case p.facts.MakesInterface && made >= 0:
			f.report(secondMain, p.typed, "another network for one of the two", nil, "%s makes the container's interface, which %s has made already", p.kind, earlier[made].kind)
		case (p.facts.ClosesEgress || p.facts.NamesContainers) && len(earlier) > 0 && !slices.ContainsFunc(earlier, (*part).mayHaveHostEnd):
			f.report(hostAside, p.typed, "bridge or ptp in place of "+earlier[0].kind, nil, "%s works on what passes the host, which sees nothing of what %s makes", p.kind, earlier[0].kind)
		case p.facts.SharesMAC && len(earlier) == 0 && (p.ipam == nil || p.ipam.named == ""):
			f.report(ipamMissing, p.typed, `"ipam": {"type": "host-local", …}`, nil, "%s needs addresses: it has no MAC address of its own", p.kind)
		}
		for _, inner := range p.chain {
			if inner.facts.PluginsKey != "" {
				f.report(refused, inner.typed, "its plugins in its place", nil, "a chain can't be part of a chain")
			}
		}
		f.checkOrder(p.chain, earlier)
	}
}

// mayHaveHostEnd reports whether the host may see what the interface sends: others' plugins are not known.
func (p *part) mayHaveHostEnd() bool {
	return p.plugin == nil || p.facts.HasHostEnd || p.facts.PluginsKey != "" || p.facts.DelegateKey != ""
}

var (
	misspelledCapability = codes.Declare(finding.Code{Name: "misspelled-capability", Severity: finding.Warning, Fixable: true,
		Meaning: "No runtime knows this capability, which is much like one that the plugin reads.",
		Remedy:  "the capability as it is spelled"})
	unreadCapability = codes.Declare(finding.Code{Name: "unread-capability", Severity: finding.Info,
		Meaning: "The plugin does not read what it asks the runtime for."})
	unsentCapability = codes.Declare(finding.Code{Name: "unsent-capability", Severity: finding.Info,
		Meaning: "containerd, CRI-O, nerdctl, podman and Multus don't give this to plugins. Programs over libcni can, and so do `cnictl run` and `cnitool` with `CAP_ARGS`."})
)

// checkCapabilities compares what a plugin asks the runtime for with what it reads.
func (f *file) checkCapabilities(p *part, set keys.Set) {
	if p.facts.PluginsKey != "" || p.facts.DelegateKey != "" || p.plugin.Borrows || p.filledIn {
		return // others read them
	}
	var read []string
	for _, k := range set.Runtime {
		read = append(read, k.Name)
	}
	certain := true
	if p.ipam != nil {
		ipam, known := p.ipam.table()
		certain = known
		for _, k := range ipam.Runtime {
			read = append(read, k.Name)
		}
	}
	misspelled := ""
	asked := p.get("capabilities")
	if asked != nil && asked.kind == '{' {
		for i := range asked.members {
			m := &asked.members[i]
			if isNote(m.name) || m.value.kind != 't' {
				continue
			}
			if slices.Contains(read, m.name) {
				if !slices.Contains(runtimes.Capabilities, m.name) {
					f.report(unsentCapability, m.key, "", nil, "no runtime that is known here gives %q, unless it is a program of your own over libcni", m.name)
				}
				continue
			}
			if like := nearestWord(m.name, read); like != "" {
				misspelled = like
				f.report(misspelledCapability, m.key, strconv.Quote(like), f.rename(asked, m, like), "no runtime knows the capability %q; did you mean %q?", m.name, like)
			} else if certain {
				f.report(unreadCapability, m.key, "", nil, "%s does not read the capability %q", p.kind, m.name)
			}
		}
	}
	f.checkNeeded(p, misspelled)
}

var (
	deviceMissing = codes.Declare(finding.Code{Name: "device-missing", Severity: finding.Error,
		Meaning: "host-device does not know which device to take: ADD fails.",
		Remedy:  "`device`, `hwaddr`, `kernelpath` or `pciBusID`, or the capability `deviceID`"})
	capabilityMissing = codes.Declare(finding.Code{Name: "capability-missing", Severity: finding.Warning, Fixable: true,
		Meaning: "Runtimes give a plugin what they are asked for in `capabilities` only: without it the plugin does nothing.",
		Remedy:  "`capabilities`"})
)

// checkNeeded looks for capabilities without which a plugin does nothing.
func (f *file) checkNeeded(p *part, misspelled string) {
	has := func(name string) bool {
		return p.get("capabilities").isOn(name) || p.get("runtimeConfig").get(name) != nil || misspelled == name
	}
	need := func(name, instead string) {
		fix, edits := fmt.Sprintf(`"capabilities": {%q: true}`, name), []edit(nil)
		if p.member("capabilities") == nil && p.typed.end > p.typed.at+1 {
			edits = []edit{{p.typed.end, p.typed.end, ", " + fix}}
		}
		f.report(capabilityMissing, p.typed, fix, edits, "%s does not ask the runtime for %q%s: it does nothing", p.kind, name, instead)
	}
	switch {
	case p.plugin.AsksFor("portMappings") && !has("portMappings"):
		need("portMappings", "")
	case p.reads(limits[0]) && !has(limited) && !slices.ContainsFunc(limits, func(k string) bool { return p.member(k) != nil }):
		need(limited, ", and has no rate")
	case p.reads(deviceKeys[0]) && !has("deviceID") && !slices.ContainsFunc(deviceKeys, func(k string) bool { return p.str(k) != "" }):
		f.report(deviceMissing, p.typed, `"device": "eth1"`, nil, "%s is not told which device to take", p.kind)
	}
}

var deviceKeys = []string{"device", "hwaddr", "kernelpath", "pciBusID"}

var keysExclude = codes.Declare(finding.Code{Name: "keys-exclude", Severity: finding.Error,
	Meaning: "Two keys can't be used together: ADD fails.",
	Remedy:  "one of them"})

// checkExclusive looks for keys that can't be used together.
func (f *file) checkExclusive(p *part) {
	both := func(a, b string, clash bool) {
		if clash {
			f.report(keysExclude, p.member(b).key, "one of the two", nil, "%s can't have both %q and %q", p.kind, a, b)
		}
	}
	both("hairpinMode", "promiscMode", p.reads("promiscMode") && p.isOn("hairpinMode") && p.isOn("promiscMode"))
	both("disableContainerInterface", "ipam", p.reads("disableContainerInterface") && p.isOn("disableContainerInterface") && p.ipam != nil && p.ipam.named != "")
	both("markMasqBit", "externalSetMarkChain", p.reads("markMasqBit") && p.member("markMasqBit") != nil && p.str("externalSetMarkChain") != "")
}

var ipamIgnored = codes.Declare(finding.Code{Name: "ipam-ignored", Severity: finding.Warning,
	Meaning: "The plugin does not read `ipam`: it hands out no address.",
	Remedy:  "`ipam` in the plugin that makes the interface"})

// checkIPAM looks at the object "ipam", and whether there has to be one.
func (f *file) checkIPAM(p *part, known bool, own keys.Table) {
	k := own.Find("ipam")
	switch {
	case p.plugin != nil && p.plugin.Kind == plugin.IPAM: // checkPlugin says that
		return
	case p.ipam == nil || p.ipam.named == "" && len(p.ipam.members) == 0:
		if k != nil && k.Required && !p.filledIn {
			f.report(ipamMissing, p.typed, `"ipam": {"type": "host-local", …}`, nil, "%s needs addresses, and has no \"ipam\"", p.kind)
		}
		return
	case known && k == nil && p.ipam.named != "" && p.facts.PluginsKey == "":
		f.report(ipamIgnored, p.member("ipam").key, "nothing, or move it to the plugin that makes the interface", nil, "%s does not read \"ipam\"", p.kind)
		return
	}
	f.checkPlugin(p.ipam, true)
	set, known := p.ipam.table()
	if !known || p.ipam.plugin.Kind != plugin.IPAM {
		return
	}
	table := f.within(p.ipam, set.Own, keys.Table{{Name: "type", Type: keys.String}})
	f.checkKeys(p.ipam.value, table, p.ipam.kind)
	f.checkBelow(p.ipam.value, table, p.ipam.kind)
	f.checkSchema(p.ipam.value, table)
	f.checkOrigin(p.ipam.value, table, p.ipam.kind)
	f.checkAddresses(p)
}

var (
	defaultRouteTwice = codes.Declare(finding.Code{Name: "default-route-twice", Severity: finding.Warning,
		Meaning: "`isDefaultGateway` makes a default route, and `routes` has one without a gateway. The reference plugin fails with \"file exists\".",
		Remedy:  "one of the two"})
	needsIPAM = codes.Declare(finding.Code{Name: "needs-ipam", Severity: finding.Warning,
		Meaning: "The key does nothing without addresses.",
		Remedy:  "`ipam`, or the key left out"})
	noDefaultRoute = codes.Declare(finding.Code{Name: "no-default-route", Severity: finding.Warning,
		Meaning: "The network masquerades what goes out, but containers have no route out.",
		Remedy:  "`isDefaultGateway`, or a route to 0.0.0.0/0"})
)

// checkAddressUse looks for keys that need addresses or routes, and don't have them.
func (f *file) checkAddressUse(p *part) {
	if !p.reads("ipMasq") || p.filledIn {
		return
	}
	if p.ipam == nil || p.ipam.named == "" {
		for _, name := range []string{"isGateway", "isDefaultGateway", "ipMasq"} {
			if p.facts.Bridge != "" && p.isOn(name) {
				f.report(needsIPAM, p.member(name).key, `"ipam": {"type": "host-local", …}`, nil, "%q does nothing without \"ipam\"", name)
			}
		}
		return
	}
	routes := p.ipam.get("routes")
	switch {
	case p.isOn("ipMasq") && p.ipam.reads("routes") && !p.isOn("isDefaultGateway") && (routes == nil || len(routes.items) == 0) && !f.hasOthersBehind(p):
		fix := `"routes": [{"dst": "0.0.0.0/0"}] in "ipam"`
		if p.reads("isDefaultGateway") {
			fix = `"isDefaultGateway": true`
		}
		f.report(noDefaultRoute, p.member("ipMasq").key, fix, nil, "what goes out is masqueraded, but the container has no route out")
	case p.isOn("isDefaultGateway") && routes != nil:
		for _, r := range routes.items {
			if dst := r.str("dst"); (dst == "0.0.0.0/0" || dst == "::/0") && r.get("gw") == nil {
				f.report(defaultRouteTwice, r.get("dst").span, `nothing, or "gw" with the gateway`, nil, "\"isDefaultGateway\" makes the route to %s already", dst)
			}
		}
	}
}

// hasOthersBehind reports whether a plugin that is not ours stands behind one: it may give the container what that does not, as a virtual machine
// gets its routes.
func (f *file) hasOthersBehind(p *part) bool {
	all := f.network.all()
	return slices.ContainsFunc(all[slices.Index(all, p):], func(q *part) bool { return q.plugin == nil })
}
