// Package multihost connects pods of several nodes by flannel: etcd, flannel's daemon on each node, and the plugin, over real links.
package multihost
