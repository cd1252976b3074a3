package lint

import "slices"

// Code is a kind of finding. docs/operate/lint.md has them as a table.
type Code struct {
	Name     string
	Severity Severity
	Meaning  string
	Remedy   string // in general; a finding says it with the file's own names
	Fixable  bool   // --fix can write it, at least where there is one way only
}

func codeOf(name string) Code {
	i := slices.IndexFunc(Codes, func(c Code) bool { return c.Name == name })
	return Codes[i] // a test makes sure that it is there
}

// Codes are all kinds, the worst first.
var Codes = []Code{
	{"burst-too-small", Error, "A burst has less room than one packet: the kernel drops all packets of full size. Rates and bursts are in bits, not bytes.", "at least 12112 for an MTU of 1500", false},
	{"chained-first", Error, "This plugin changes what one before it has made, and stands first: ADD fails.", "a plugin that makes an interface before it", false},
	{"device-missing", Error, "host-device does not know which device to take: ADD fails.", "`device`, `hwaddr`, `kernelpath` or `pciBusID`, or the capability `deviceID`", false},
	{"gateway-outside", Error, "The gateway is not in the subnet. The container can't reach it, so ADD fails or the container has no way out.", "an address of the subnet", false},
	{"host-bits", Error, "A network is written with an address of a host in it. Plugins and the kernel refuse that.", "the network's own address", true},
	{"ipam-missing", Error, "The plugin can't work without addresses: ADD fails.", "`ipam` with a `type`", false},
	{"keys-exclude", Error, "Two keys can't be used together: ADD fails.", "one of them", false},
	{"master-missing", Error, "The node has no such link: ADD fails (with --node).", "a link of this node", false},
	{"missing-key", Error, "A key that the plugin needs is not there: ADD fails.", "the key", false},
	{"mtu-above-master", Error, "The kernel refuses a larger MTU than that of the link below (with --node).", "at most the MTU of that link", false},
	{"name-invalid", Error, "The network's name has a character that CNI does not allow: ADD fails.", "letters, digits, `_`, `.` and `-`, the first a letter or digit", false},
	{"name-missing", Error, "A network has to have a name.", "`name`", false},
	{"no-room", Error, "The range has no address to hand out.", "a larger subnet", false},
	{"not-json", Error, "The file is not JSON. libcni refuses it, and with it networks in files behind it.", "what JSON wants there", true},
	{"out-of-range", Error, "A number is too large or too small.", "a number within the bounds", false},
	{"plugin-not-installed", Error, "No directory of plugins has this plugin: ADD fails (with --node).", "`cnictl install`, or another plugin", false},
	{"plugins-missing", Error, "The network has no plugins.", "`plugins` with at least one", false},
	{"range-exchanged", Error, "The first address of the range is behind the last: ADD fails.", "the two the other way round", true},
	{"range-outside", Error, "The range has an address that is not in its subnet: ADD fails.", "an address of the subnet", false},
	{"ranges-overlap", Error, "Two ranges of one plugin have addresses in common: ADD fails.", "ranges that have none in common", false},
	{"refused", Error, "The plugin refuses its configuration for another reason, which the message says.", "what the message says", false},
	{"route-overlap", Error, "A route of this node leads to the subnet's addresses by another link (with --node).", "another subnet", false},
	{"second-main", Error, "A second plugin wants to make the container's interface, which is there already: ADD fails.", "one of the two in a network of its own", false},
	{"subnets-overlap", Error, "Two networks that this node routes for hand out the same addresses.", "another subnet", false},
	{"type-missing", Error, "A plugin or `ipam` has no `type`, so nobody knows what to run.", "`type`", false},
	{"version-too-old", Error, "The plugin, or what the configuration asks of it, needs a newer `cniVersion`.", "a newer `cniVersion`, such as 1.0.0", false},
	{"version-unknown", Error, "There is no such version of CNI: plugins refuse it.", "a version of CNI, such as 1.0.0", true},
	{"wrong-extension", Error, "The file's name does not fit what is in it, so runtimes refuse it: lists of plugins are `.conflist`, single plugins `.conf` or `.json`.", "the other extension", false},
	{"wrong-form", Error, "A string does not have the form that the plugin wants, such as that of an address.", "a value of that form", false},
	{"wrong-kind", Error, "An IPAM plugin stands in the list, or another plugin in `ipam`.", "a plugin of the other kind", false},
	{"wrong-type", Error, "A value has the wrong JSON type, such as a string in place of a number.", "a value of the right type", true},
	{"wrong-word", Error, "The key takes certain words only.", "one of them", true},

	{"bridge-shared", Warning, "Two networks give one bridge different gateways. Without `forceAddress` the second ADD fails.", "another bridge, or one subnet with a range for each", false},
	{"capability-missing", Warning, "Runtimes give a plugin what they are asked for in `capabilities` only: without it the plugin does nothing.", "`capabilities`", true},
	{"default-route-twice", Warning, "`isDefaultGateway` makes a default route, and `routes` has one without a gateway. The reference plugin fails with \"file exists\".", "one of the two", false},
	{"duplicate-key", Warning, "An object has a key twice. Only the last one counts.", "one of them", false},
	{"file-ignored", Warning, "The file has a network, but no extension that libcni reads.", "`.conflist`", false},
	{"ipam-ignored", Warning, "The plugin does not read `ipam`: it hands out no address.", "`ipam` in the plugin that makes the interface", false},
	{"misspelled-capability", Warning, "No runtime knows this capability, which is much like one that the plugin reads.", "the capability as it is spelled", true},
	{"misspelled-plugin", Warning, "There is no such plugin in cnibox, but one with a name much like it.", "the plugin's name", false},
	{"mtu-too-small", Warning, "IPv6 needs an MTU of 1280. Below that the kernel takes all IPv6 addresses from the link.", "1280 or more", false},
	{"needs-ipam", Warning, "The key does nothing without addresses.", "`ipam`, or the key left out", false},
	{"network-name-twice", Warning, "Of two files with one network libcni takes the first. The other does nothing.", "another name", false},
	{"no-default-route", Warning, "The network masquerades what goes out, but containers have no route out.", "`isDefaultGateway`, or a route to 0.0.0.0/0", false},
	{"not-in-cnibox", Warning, "Some version of the reference plugin reads this key, and cnibox does not.", "see the plugin's page", false},
	{"plugin-older", Warning, "The installed plugin is older than a key of the configuration, and ignores it (with --node).", "a newer plugin", false},
	{"rate-too-low", Warning, "The rate is lower than a modem's. Rates are in bits a second.", "the rate in bits a second", false},
	{"unknown-key", Warning, "The plugin does not have this key. CNI says that it is ignored: it does nothing.", "the key that was meant, or nothing", true},
	{"unsafe-setting", Warning, "The setting lets a container do what it should not, or takes away a protection of the host.", "the setting left out", false},

	{"key-case", Info, "The key is spelled in upper and lower case of its own. Plugins take it; other programs that read the file may not.", "the key as the manual spells it", true},
	{"only-cnibox", Info, "cnibox alone knows this. The reference plugins ignore or refuse it, so that the file means something else there.", "", false},
	{"reference-newer", Info, "A newer version of the reference plugins than the one you asked about (--reference) reads this key.", "", false},
	{"sorts-behind", Info, "Kubernetes' runtimes take the first network of the directory, in the order of text: `10-` comes before `9-`.", "", false},
	{"unknown-plugin", Info, "The plugin is not one of cnibox. Its keys are not checked.", "", false},
	{"unread-capability", Info, "The plugin does not read what it asks the runtime for.", "", false},
	{"version-missing", Info, "Without `cniVersion` the version is 0.1.0, which has neither CHECK nor several addresses of one family.", "`cniVersion`", false},
}
