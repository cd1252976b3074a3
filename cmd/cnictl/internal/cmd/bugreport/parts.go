package bugreport

import (
	"strings"
	"time"
)

// Parts lists what a report has, without reading any of it.
func Parts() []Part { return parts }

// parts are in the order in which they are read: what is most likely to be needed comes first, should the report become too large.
var parts = []Part{
	{"node", "all of the below, joined as cnictl show prints it: libcni's caches, what plugins hold, links, namespaces", 30 * time.Second, (*source).readNode},
	{"doctor", "what cnictl doctor and cnictl metrics print", 30 * time.Second, (*source).readDoctor},
	{"gc", "what cnictl gc would remove, for which container runtimes are asked what they run", 20 * time.Second, (*source).readGC},
	{"log", "the last calls in the log of plugins' calls", 10 * time.Second, (*source).readLog},
	{"configurations", "the networks' files, " + strings.Join(otherFiles(), ", "), 5 * time.Second, (*source).readConfigurations},
	{"results", "libcni's caches: /var/lib/cni/results, multus', --cache-dir", 10 * time.Second, (*source).readResults},
	{"plugins", "the files in directories of plugins: size, time, SHA-256, what Go programs say of themselves", 20 * time.Second, (*source).readPlugins},
	{"versions", "what programs print: " + strings.Join(versions, ", "), 15 * time.Second, (*source).readVersions},
	{"processes", "/proc/*/comm of runtimes, agents and daemons of networks: names only", 5 * time.Second, (*source).readProcesses},
	{"kernel", "uname, /proc/version, /proc/cmdline, /proc/modules, /etc/os-release", 5 * time.Second, (*source).readKernel},
	{"sysctls", "below /proc/sys: " + strings.Join(sysctls, ", "), 5 * time.Second, (*source).readSysctls},
	{"host-network", "links, addresses, routes and rules of the host", 10 * time.Second, (*source).readHostNetwork},
	{"namespaces", "links, addresses, routes and rules in each container's namespace", 20 * time.Second, (*source).readNamespaces},
	{"nftables", "nft list ruleset, or without nft a list of tables, chains and sets", 10 * time.Second, (*source).readNFT},
	{"ip", printed(ipCommands), 20 * time.Second, (*source).readIP},
	{"iptables", printed(iptablesCommands), 20 * time.Second, (*source).readIPTables},
	{"firewalld", "whether it runs, and then " + printed(firewalldCommands), 15 * time.Second, (*source).readFirewalld},
	{"mounts", "/proc/self/mountinfo: namespaces, and where state and plugins are", 5 * time.Second, (*source).readMounts},
	{"disks", "space and files left where state is kept", 5 * time.Second, (*source).readDisks},
	{"directories", "names, sizes and times of files: " + strings.Join(directories, ", ") + ", networks, plugins", 10 * time.Second, (*source).listDirectories},
	{"journal", printed(journalCommands), 12 * time.Second, (*source).readJournal},
}

func printed(commands []command) string {
	var lines []string
	for _, c := range commands {
		lines = append(lines, c.line)
	}
	return "what these print: " + strings.Join(lines, "; ")
}
