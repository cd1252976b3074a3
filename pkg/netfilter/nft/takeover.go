package nft

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/valyala/fastjson"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/nftables"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// resultCache is where libcni keeps, among other things, the network namespace
// of each attachment, until DEL.
const resultCache = "/var/lib/cni/results"

// leftBy returns the elements of the published ports of an owner that is gone:
// a node that crashed never sent its DEL. The error is that a port is taken, by
// an owner that is not known to be gone.
func (t *Table) leftBy(ctx context.Context, comment, port string) ([]nftables.Element, error) {
	key, ok := keyOfComment(comment)
	if !ok {
		return nil, portTaken(port, comment, "its whole name, and so whether it runs, can't be told from the table")
	}
	gone, known := t.isGone(key)
	if !gone {
		return nil, portTaken(port, comment, known)
	}
	a := attachmentOf(key, usePortMap)
	records, err := t.held(ctx, a.id)
	if err != nil {
		return nil, err
	}
	own, _, err := t.ownElements(ctx, a, records)
	if err != nil {
		return nil, err
	}
	return append(own, a.entries(records)...), forbidLocalhost(records)
}

// keyOfComment returns the key that an element's comment stands for, unless it
// was shortened or has a character replaced.
func keyOfComment(comment string) (key plugin.Key, ok bool) {
	parts := strings.Split(comment, "/")
	if len(parts) != 3 || strings.ContainsAny(comment, "~:") {
		return key, false
	}
	return plugin.Key{Network: parts[0], ContainerID: parts[1], IfName: parts[2]}, true
}

// isGone tells whether the network namespace of an attachment is known to be
// gone, and otherwise what is known of it.
func (t *Table) isGone(key plugin.Key) (gone bool, known string) {
	path, err := t.netnsOf(key)
	if err != nil {
		return false, "it is not known whether it runs: " + err.Error()
	}
	ns, err := netns.Open(path)
	switch {
	case err == nil:
		ns.Close()
		return false, "its network namespace " + path + " is there, so that it seems to be running"
	case errors.Is(err, netns.ErrNotExist):
		return true, ""
	}
	return false, "it is not known whether it runs: " + err.Error()
}

// netnsOf reads the path of an attachment's network namespace out of libcni's
// cache.
func (t *Table) netnsOf(key plugin.Key) (string, error) {
	name := filepath.Join(t.cache, key.Network+"-"+key.ContainerID+"-"+key.IfName)
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	v, err := fastjson.ParseBytes(text)
	if err != nil {
		return "", plugin.Errorf("%s is not JSON: %v", name, err)
	}
	field := func(name string) string { return string(v.GetStringBytes(name)) }
	// Names may have dashes too: several keys lead to one file.
	if field("networkName") != key.Network || field("containerId") != key.ContainerID || field("ifName") != key.IfName {
		return "", plugin.Errorf("%s is about another attachment", name)
	}
	if field("netns") == "" {
		return "", plugin.Errorf("%s names no network namespace", name)
	}
	return field("netns"), nil
}

func portTaken(port, owner, known string) error {
	if owner == "" {
		owner, known = "something that left no name", "see what holds it with `nft list table inet "+TableName+"`"
	}
	return plugin.Errorf("host port %s is already published by %s", port, owner).
		WithDetails("%s; publish another port of the host, or stop that container (network/container/interface); "+
			"if it is gone, the network's GC frees the port", known)
}
