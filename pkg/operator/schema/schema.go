// Package schema makes JSON Schemas and the manual's tables from the keys that plugins declare.
package schema

import (
	"slices"

	"github.com/cnibox/cnibox/pkg/keys"
)

// Schema is a JSON Schema (draft 2020-12), or a part of one. It prints as JSON with its keys in alphabetical order.
type Schema map[string]any

// Draft is the URI of the version of JSON Schema that schemas are written in.
const Draft = "https://json-schema.org/draft/2020-12/schema"

// Comments is a pattern for keys that anybody may add: comments, an editor's "$schema", those that libcni adds, and what kubenet (addIf)
// and nerdctl (ipRange) note in a plugin's object or a range.
const Comments = `^(_|//|#|x-|\$|cni\.dev/|addIf$|ipRange$)`

// Of describes an object with these keys. A key that is not in the table is refused, unless it is a comment.
func Of(t keys.Table) Schema {
	properties := Schema{}
	var required []string
	for _, k := range t {
		properties[k.Name] = ofKey(k)
		if k.Required {
			required = append(required, k.Name)
		}
	}
	s := Schema{
		"type": []string{"object", "null"}, "properties": properties,
		"patternProperties": Schema{Comments: true}, "additionalProperties": false,
	}
	if required != nil {
		s["required"] = required
	}
	return s
}

func ofKey(k keys.Key) Schema {
	s := value(k)
	s["description"], s["markdownDescription"] = plain(description(k)), description(k)
	return s
}

// description is what an editor shows beside the key.
func description(k keys.Key) string {
	line := k.Doc
	if k.Default != "" {
		line += " Default: " + k.Default + "."
	}
	return line + since(k)
}

func value(k keys.Key) Schema {
	switch k.Type {
	case keys.String:
		return text(k, true)
	case keys.Strings:
		return Schema{"type": []string{"array", "null"}, "items": text(k, false)}
	case keys.Bool:
		return Schema{"type": []string{"boolean", "null"}}
	case keys.Int:
		return number(k)
	case keys.Objects:
		return Schema{"type": []string{"array", "null"}, "items": object(k, "object")}
	case keys.ObjectLists:
		return Schema{"type": []string{"array", "null"}, "items": Schema{"type": "array", "items": object(k, "object")}}
	case keys.StringMap:
		return Schema{"type": []string{"object", "null"}, "additionalProperties": Schema{"type": "string"}}
	case keys.BoolMap:
		return Schema{"type": []string{"object", "null"}, "additionalProperties": Schema{"type": []string{"boolean", "null"}}}
	}
	return object(k, "object", "null")
}

func object(k keys.Key, types ...string) Schema {
	s := Schema{}
	if k.Keys != nil {
		s = Of(k.Keys)
	}
	s["type"] = types
	return s
}

// text describes a string. An empty one is as good as none, unless the key is required.
func text(k keys.Key, orNone bool) Schema {
	s := Schema{"type": "string"}
	if orNone {
		s["type"] = []string{"string", "null"}
	}
	orNone = orNone && !k.Required && k.Form != keys.Interface
	if pattern := patterns[k.Form]; pattern != "" {
		if orNone {
			pattern = "^$|" + pattern
		}
		s["pattern"] = pattern
	}
	if k.Words != nil {
		words := make([]any, 0, len(k.Words)+2)
		for _, w := range k.Words {
			words = append(words, w)
		}
		if orNone {
			words = append(words, "", nil)
		}
		s["enum"] = words
	}
	return s
}

// The patterns are for both Go's and JavaScript's regular expressions. They find what is surely wrong, and not all of it.
const (
	addressPattern = `(([0-9]{1,3}\.){3}[0-9]{1,3}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)`
	lengthPattern  = `/[0-9]{1,3}`
)

var patterns = map[keys.Form]string{
	keys.Address:      "^" + addressPattern + "$",
	keys.Prefix:       "^" + addressPattern + lengthPattern + "$",
	keys.AddressWith:  "^" + addressPattern + lengthPattern + "$",
	keys.AddressOrNet: "^" + addressPattern + "(" + lengthPattern + ")?$",
	keys.MAC:          `^(([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}|([0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4})$`,
	keys.Interface:    `^[^/:\s]{1,15}$`,
	keys.Hardware:     `^([0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5,19}|([0-9A-Fa-f]{4}\.){2,9}[0-9A-Fa-f]{4})$`,
	keys.Path:         "^/",
	keys.Device:       "^/sys/devices/",
}

func number(k keys.Key) Schema {
	s := Schema{"type": []string{"integer", "null"}}
	r := k.Range
	if r == nil {
		return s
	}
	s["maximum"] = r.Max
	switch {
	case r.Negative:
		s["anyOf"] = []Schema{{"maximum": 0}, {"minimum": r.Min}}
	case r.Zero && r.Min > 0:
		s["anyOf"] = []Schema{{"minimum": 0, "maximum": 0}, {"minimum": r.Min}}
	default:
		s["minimum"] = r.Min
	}
	return s
}

// Common are the keys that every plugin's object in a configuration may have. Those that are for the runtime do nothing in a plugin.
func Common() keys.Table {
	return keys.Table{
		{Name: "type", Type: keys.String, Required: true, Doc: "The plugin's name."},
		{Name: "name", Type: keys.String, Doc: "The network's name, where the configuration is no list."},
		{Name: "cniVersion", Type: keys.String, Doc: "The version of CNI, where the configuration is no list."},
		{Name: "capabilities", Type: keys.BoolMap, Doc: "The values that the runtime is asked to fill in: each key is one of `runtimeConfig`."},
		{Name: "args", Type: keys.Object, Doc: "Wishes of this network's author. Plugins look into `args.cni`."},
		{Name: "runtimeConfig", Type: keys.Object, Doc: "The values that the runtime fills in, as `capabilities` asks for."},
		{Name: "prevResult", Type: keys.Object, Doc: "The result of the plugins before this one. The runtime fills it in."},
	}
}

// WithCommon returns a plugin's keys, and the common ones that are not among them.
func WithCommon(own keys.Table) keys.Table {
	merged := slices.Clone(own)
	for _, k := range Common() {
		if merged.Find(k.Name) == nil {
			merged = append(merged, k)
		}
	}
	return merged
}
