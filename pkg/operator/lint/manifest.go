package lint

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/finding"
	"github.com/cnibox/cnibox/pkg/operator/netconf"
)

var template = codes.Declare(finding.Code{Name: "template", Severity: finding.Info,
	Meaning: "The file is a template, such as containerd's `conf_template`. containerd puts values in and writes the network, and that is the file to look at.",
	Remedy:  "see the message"})

// read reads the networks of a file: its own, or those of the NetworkAttachmentDefinitions in it.
func read(in Input, o Options) []*file {
	f := &file{Input: in, options: o}
	action, at := netconf.Template(in.Text)
	switch {
	case action != "":
		f.report(template, span{at: at}, "", nil, "it is a template, not a network: %s", netconf.WhatToDo(action))
	case netconf.IsManifest(in.Name, in.Text):
		return f.readDefinitions()
	default:
		f.readText()
	}
	return []*file{f}
}

var configElsewhere = codes.Declare(finding.Code{Name: "config-elsewhere", Severity: finding.Info,
	Meaning: "The NetworkAttachmentDefinition has no `config`. Multus takes the network of its name from a file on the pod's node, mostly in `/etc/cni/multus/net.d`.",
	Remedy:  "`config`, or look at that file"})

// readDefinitions reads a manifest. The text after a mistake in it can't be read.
func (f *file) readDefinitions() (list []*file) {
	definitions, err := netconf.Definitions(f.Text)
	switch {
	case err != nil:
		f.reportYAML(err)
		list = append(list, f)
	case definitions == nil:
		f.report(pluginsMissing, span{}, "", nil, "there is no NetworkAttachmentDefinition in it")
		list = append(list, f)
	}
	for i := range definitions {
		d := &definitions[i]
		of := &file{Input: Input{Name: f.Name, Text: []byte(d.Config), InDir: f.InDir}, options: f.options, definition: d, manifest: f.Text}
		switch {
		case !d.IsText:
			of.report(wrongType, span{}, "the network as a string: config: '{…}'", nil, "\"config\" has to be a string, and Kubernetes refuses another value")
		case of.isElsewhere():
			of.report(configElsewhere, span{}, "", nil, "%q has no configuration: Multus takes the network of this name from a file in %s on the pod's node", d.Name, netconf.MultusDir)
		default:
			of.readText()
		}
		list = append(list, of)
	}
	return list
}

// isElsewhere reports whether the configuration of a definition is in a file of the node.
func (f *file) isElsewhere() bool { return f.definition.IsText && f.definition.Config == "" }

var notYAML = codes.Declare(finding.Code{Name: "not-yaml", Severity: finding.Error,
	Meaning: "The file of NetworkAttachmentDefinitions is not YAML. The text after the mistake was not looked at.",
	Remedy:  "what YAML wants there"})

var lineOf = regexp.MustCompile(`^line (\d+): `)

// reportYAML takes the line out of the parser's message, which has it nowhere else.
func (f *file) reportYAML(err error) {
	text, at := strings.TrimPrefix(err.Error(), "yaml: "), 0
	if m := lineOf.FindStringSubmatch(text); m != nil {
		line, _ := strconv.Atoi(m[1])
		text, at = text[len(m[0]):], f.offset(line, 1)
	}
	f.report(notYAML, span{at: at}, "", nil, "%s", text)
}
