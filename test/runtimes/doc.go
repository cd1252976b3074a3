// Package runtimes holds the tests that run real containers: containerd and podman attach containers through the plugins, and
// a published port is asked for a page from outside, through the node's own address and through 127.0.0.1. buildah and BuildKit build images
// with steps that use the network, and go-cni attaches namespaces. When the containers are gone, nothing of theirs may be left.
//
// scripts/setup-runtimes.sh installs the programs that Debian packages. BuildKit, go-cni and a new containerd, which is tried beside Debian's, are
// built from their Go modules. Everything else happens in namespaces of its own (network, mount,
// process, IPC and host name) and in a control group that is removed at the end, so the machine stays as it was and the
// containers of the machine's own runtimes are not touched.
//
// The plugins under test are what netlab provides (CNIBOX_BIN_DIR, or a fresh build). PLUGIN_DIR names a directory of
// other plugins to test in their place, with which the tests themselves can be checked: version 1.9.1 of the reference
// plugins does not pass TestCtr and TestCtrDetached, because it keeps the masquerade rules of a container whose namespace
// is gone by the time of DEL; TestGoCNIPublishedPort, because it gives a port to two containers; and TestBuildKitReboot, because its DEL refuses
// a plain file where a namespace was, so that the addresses are lost.
package runtimes
