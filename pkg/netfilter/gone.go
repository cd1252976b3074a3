package netfilter

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/valyala/fastjson"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Gone reports whether the network namespace of an attachment is known to be gone,
// though no DEL has come for it, as after a crash of the runtime. known says, for
// people, what is known instead. results is the directory in which libcni keeps,
// among other things, the namespace of each attachment until DEL.
func Gone(results string, key plugin.Key) (gone bool, known string) {
	path, err := netnsOf(results, key)
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
func netnsOf(results string, key plugin.Key) (string, error) {
	name := filepath.Join(results, key.Network+"-"+key.ContainerID+"-"+key.IfName)
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
