package bugreport

import (
	"fmt"
	"strings"
	"time"
)

// parts are in the order in which they are read: what is most likely to be needed comes first, should the report become too large.
var parts = []Part{
	says("show", 30*time.Second, "show.json", "show --json", "--network", true),
	says("networks", 30*time.Second, "networks.json", "show networks --json", "--network", true),
	says("doctor", time.Minute, "doctor.json", "doctor --json", "--network", true),
	says("gc", 30*time.Second, "gc.json", "gc --json", "--", true),
	says("metrics", 30*time.Second, "metrics.prom", "metrics", "", true),
	says("log", 10*time.Second, "log.json", fmt.Sprintf("log --json --lines %d", mostCalls), "--network", false),
	says("log-status", 10*time.Second, "log-status.json", "log status --json", "", false),
	{"configurations", "the networks' files, " + strings.Join(otherFiles(), ", "), 5 * time.Second, (*source).readConfigurations},
	{"results", "libcni's caches: /var/lib/cni/results, multus', --cache-dir", 10 * time.Second, (*source).readResults},
	{"plugins", "the files in directories of plugins: size, time, SHA-256, what Go programs say of themselves", 20 * time.Second, (*source).readPlugins},
	prints("versions", 15*time.Second, 2*time.Second, versionCommands),
	{"processes", "which runtimes, agents and daemons of networks run in the host's network namespace: names only", 5 * time.Second, (*source).readProcesses},
	{"kernel", strings.Join(kernelFiles, ", "), 5 * time.Second, (*source).readKernel},
	{"sysctls", "below /proc/sys: " + strings.Join(sysctls, ", "), 5 * time.Second, (*source).readSysctls},
	{"host-network", "links, addresses, routes and rules of the host", 10 * time.Second, (*source).readHostNetwork},
	{"namespaces", "links, addresses, routes and rules in each container's namespace", 30 * time.Second, (*source).readNamespaces},
	{"nftables", "nft -a list ruleset, or without nft a list of tables, chains and sets", 10 * time.Second, (*source).readNFT},
	prints("ip", 20*time.Second, 5*time.Second, ipCommands),
	prints("iptables", 20*time.Second, 5*time.Second, iptablesCommands),
	{"firewalld", "whether it runs, and then " + prints("", 0, 0, firewalldCommands).Reads, 15 * time.Second, (*source).readFirewalld},
	{"mounts", "mounts of namespaces, and of the directories that state and plugins are in", 5 * time.Second, (*source).readMounts},
	{"disks", "space and files left where state is kept", 5 * time.Second, (*source).readDisks},
	{"directories", "names, sizes and times of files: " + strings.Join(directories, ", ") + ", networks, plugins", 10 * time.Second, (*source).listDirectories},
	prints("journal", 12*time.Second, 5*time.Second, journalCommands),
}

// mostCalls of the log are in the report, the last ones.
const mostCalls = 2000
