package netfilter

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/valyala/fastjson"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// ResultCache is where libcni keeps, among other things, the network namespace
// of each attachment, until DEL.
const ResultCache = "/var/lib/cni/results"

// Gone tells whether the network namespace of an attachment is known to be gone,
// though no DEL has come for it, as after a crash of the runtime. known says, for
// people, what is known instead. cache is ResultCache.
func Gone(cache string, key plugin.Key) (gone bool, known string) {
	path, err := netnsOf(cache, key)
	if err != nil {
		return false, "it is not known whether it runs: " + err.Error()
	}
	ns, err := netns.Open(path)
	switch {
	case err == nil:
		_ = ns.Close()
		return false, "its network namespace " + path + " is there, so that it seems to be running"
	case errors.Is(err, netns.ErrNotExist):
		return true, ""
	}
	return false, "it is not known whether it runs: " + err.Error()
}

// netnsOf reads the path of an attachment's network namespace out of libcni's
// cache.
func netnsOf(cache string, key plugin.Key) (string, error) {
	name := filepath.Join(cache, key.Network+"-"+key.ContainerID+"-"+key.IfName)
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	v, err := fastjson.ParseBytes(text)
	if err != nil {
		return "", plugin.Errorf("", "%s is not JSON: %v", name, err)
	}
	field := func(name string) string { return string(v.GetStringBytes(name)) }
	// Names may have dashes too: several keys lead to one file.
	if field("networkName") != key.Network || field("containerId") != key.ContainerID || field("ifName") != key.IfName {
		return "", plugin.Errorf("", "%s is about another attachment", name)
	}
	if field("netns") == "" {
		return "", plugin.Errorf("", "%s names no network namespace", name)
	}
	return field("netns"), nil
}
