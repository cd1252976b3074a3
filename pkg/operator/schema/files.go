package schema

import (
	"maps"
	"slices"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Base is where the schemas are, each under its file's name.
const Base = "https://github.com/cnibox/cnibox/raw/main/schemas/"

// The schemas that are no plugin's.
const (
	Conflist = "conflist.json" // a file that ends in .conflist
	Plugin   = "plugin.json"   // an entry of its plugins, or a file that ends in .conf
	IPAM     = "ipam.json"     // the object ipam
)

// Files returns all schemas, by the names of their files: one of each plugin, and those above.
func Files(table plugin.Table) map[string]Schema {
	files := map[string]Schema{
		Conflist: file(Conflist, "A list of CNI plugins", conflist()),
		Plugin:   file(Plugin, "A plugin of a CNI configuration", byType(table, []string{"object"}, plugin.Main, plugin.Meta)),
		IPAM:     file(IPAM, "An IPAM plugin of a CNI configuration", byType(table, []string{"object", "null"}, plugin.IPAM)),
	}
	for _, row := range table {
		files[row.Name+".json"] = file(row.Name+".json", row.Name+": "+row.Summary, ofPlugin(row))
	}
	return files
}

func file(name, title string, s Schema) Schema {
	maps.Copy(s, Schema{"$schema": Draft, "$id": Base + name, "title": title})
	return s
}

// ofPlugin describes a plugin's object; an IPAM plugin's is the object ipam.
func ofPlugin(row plugin.Descriptor) Schema {
	set := row.Plugin.(plugin.Configured).Keys() // a test makes sure that it is one
	if row.Kind == plugin.IPAM {
		return Of(slices.Concat(keys.Table{{Name: "type", Type: keys.String, Required: true, Doc: "The IPAM plugin's name."}}, set.Own))
	}
	s := Of(WithCommon(set.Own))
	properties := s["properties"].(Schema)
	properties["runtimeConfig"] = open(properties["runtimeConfig"].(Schema), set.Runtime)
	properties["args"] = open(properties["args"].(Schema), keys.Table{{Name: "cni", Type: keys.Object}})
	cni := properties["args"].(Schema)["properties"].(Schema)
	cni["cni"] = open(cni["cni"].(Schema), set.Args)
	if k := set.Own.Find("ipam"); k != nil && row.Facts(nil).IPAMType == "" { // else it completes it
		properties["ipam"] = Schema{"$ref": IPAM, "description": plain(description(*k)), "markdownDescription": description(*k)}
	}
	if set.Own.Find("plugins") != nil {
		properties["plugins"].(Schema)["items"] = Schema{"$ref": Plugin}
	}
	return s
}

// open adds keys to the schema of an object that may have others.
func open(s Schema, t keys.Table) Schema {
	if properties, ok := Of(t)["properties"].(Schema); ok && len(t) > 0 {
		s["properties"] = properties
	}
	return s
}

// byType describes an object whose key "type" says which plugin's schema counts. Other people's plugins may have any keys. A name that
// ends in a plugin's after a "-" is that plugin's.
func byType(table plugin.Table, types []string, kinds ...plugin.Kind) Schema {
	var choices []Schema
	for _, row := range table {
		if slices.Contains(kinds, row.Kind) {
			choices = append(choices, Schema{
				"if":   Schema{"properties": Schema{"type": Schema{"pattern": "^(.*-)?" + row.Name + "$"}}, "required": []string{"type"}},
				"then": Schema{"$ref": row.Name + ".json"},
			})
		}
	}
	s := Schema{"type": types, "properties": Schema{"type": Schema{"type": "string"}}, "allOf": choices}
	if slices.Contains(types, "null") { // and an empty object is as good as null
		s["if"] = Schema{"type": "object", "minProperties": 1}
		s["then"] = Schema{"required": []string{"type"}}
	} else {
		s["required"] = []string{"type"}
	}
	return s
}

// conflist describes a list of plugins (CNI specification 1.1.0, section 1).
func conflist() Schema {
	s := Of(ListKeys())
	s["type"] = "object"
	properties := s["properties"].(Schema)
	properties["name"].(Schema)["pattern"] = `^[A-Za-z0-9][A-Za-z0-9_.\-]*$`
	properties["plugins"].(Schema)["minItems"] = 1
	properties["plugins"].(Schema)["items"] = Schema{"$ref": Plugin}
	for _, key := range []string{"disableCheck", "disableGC"} { // libcni takes both
		properties[key].(Schema)["type"] = []string{"boolean", "string", "null"}
		properties[key].(Schema)["pattern"] = "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"
	}
	properties["nerdctlID"].(Schema)["type"] = []string{"string", "integer", "null"} // old versions of nerdctl write a number
	s["anyOf"] = []Schema{{"required": []string{"plugins"}}, {"required": []string{"loadOnlyInlinedPlugins"}}}
	return s
}

// ListKeys are those of a conflist, and those that runtimes add to it.
func ListKeys() keys.Table {
	return keys.Table{
		{Name: "cniVersion", Type: keys.String, Words: plugin.Versions(""), Default: "`0.1.0`", Doc: "The version of CNI that the plugins are to speak."},
		{Name: "cniVersions", Type: keys.Strings, Doc: "Versions of CNI: a runtime takes the newest that it knows."},
		{Name: "name", Type: keys.String, Required: true, Doc: "The network's name. No other network of the node has it."},
		{Name: "disableCheck", Type: keys.Bool, Default: "`false`", Doc: "Runtimes are not to call CHECK."},
		{Name: "disableGC", Type: keys.Bool, Default: "`false`", Doc: "Runtimes are not to call GC."},
		{Name: "repair", Type: keys.String, Words: []string{"host", "all", "none"}, Default: "`host`", Since: keys.Ours,
			Doc: "How much `cnictl repair` and the agent put back: what the host has of containers, also what is inside them, or nothing."},
		{Name: "loadOnlyInlinedPlugins", Type: keys.Bool, Default: "`false`", Doc: "Take no plugins from files in a folder with the network's name."},
		{Name: "plugins", Type: keys.Objects, Doc: "The plugins, in the order in which ADD calls them."},
		{Name: "nerdctlID", Type: keys.String, Doc: "nerdctl's own."},
		{Name: "nerdctlLabels", Type: keys.StringMap, Doc: "nerdctl's own."},
		{Name: "args", Type: keys.Object, Doc: "podman's own: labels of the network."},
	}
}
