package runtimes

// Capabilities are what runtimes give to plugins that ask for it: containerd, CRI-O, nerdctl, podman and Multus, each some of it. Those are left out
// that have all annotations of a pod in them.
var Capabilities = []string{"portMappings", "bandwidth", "ips", "ipRanges", "mac", "dns", "aliases", "deviceID", "infinibandGUID"}
