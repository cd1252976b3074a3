package netconf

import (
	"bytes"
	"fmt"
	"text/template/parse"
)

// mostActions bounds how deep the parser has to go: it calls itself.
const mostActions = 1000

// Template returns the first action of a text that is a template of Go's, such as {{.PodCIDR}}, and where it stands; "" if the text is none.
func Template(text []byte) (action string, at int) {
	if n := bytes.Count(text, []byte("{{")); n == 0 || n > mostActions {
		return "", 0
	}
	t := parse.New("network")
	t.Mode = parse.SkipFuncCheck
	tree, err := t.Parse(string(text), "", "", map[string]*parse.Tree{})
	if err != nil {
		return "", 0
	}
	for _, n := range tree.Root.Nodes {
		if n.Type() == parse.NodeText {
			continue
		}
		at = max(bytes.LastIndex(text[:n.Position()], []byte("{{")), 0)
		end := bytes.Index(text[at:], []byte("}}"))
		if end < 0 {
			return "", 0
		}
		return string(text[at : at+end+2]), at
	}
	return "", 0
}

// WhatToDo says what becomes of a template with an action.
func WhatToDo(action string) string {
	return fmt.Sprintf("containerd, as conf_template says, puts the pods' subnets in place of %s, and writes the network into its conf_dir; "+
		"look at the file that it writes, such as /etc/cni/net.d/10-containerd-net.conflist", action)
}
