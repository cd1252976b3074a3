package bugreport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/operator/runtimes"
)

// document returns a JSON document with the values that are known to be harmless: those of keys that our plugins declare, and of few others. Of a text that is none the error says so; then it is the text with its form and the
// names of keys, and no values: which of them are secret can't be known.
func (s *secrets) document(text []byte) ([]byte, error) {
	var document any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err := decoder.Decode(&document)
	if err == nil && decoder.More() {
		err = fmt.Errorf("there is more behind the document")
	}
	if err != nil {
		return masked(text), err
	}
	clean, err := json.MarshalIndent(s.clean(document, s.own), "", "    ")
	return append(clean, '\n'), err
}

// capabilities are the arguments of runtimes that are no secrets. Others may have all annotations of a pod in them.
var capabilities = append(slices.Clone(runtimes.Capabilities), "egress")

// ofAll are the keys that may be seen whatever plugin an object is for.
var ofAll = []string{"cniVersion", "cniVersions", "name", "type", "capabilities", "ipam", "disableCheck", "disableGC", "loadOnlyInlinedPlugins"}

// ofResults are keys of CNI's results and of what libcni keeps beside them.
var ofResults = []string{"plugins", "prevResult", "result", "kind", "config", "containerId", "ifName", "networkName", "netns", "interfaces", "ips", "routes", "dns",
	"ip4", "ip6", "ip", "mac", "mtu", "sandbox", "socketPath", "pciID", "version", "address", "gateway", "interface", "dst", "gw", "priority", "table", "scope", "advmss",
	"nameservers", "domain", "search", "options"}

// visible are the names of keys whose values may be seen.
type visible map[string]bool

// add adds the keys that a plugin declares. Of one that may have any keys in it, all may be seen that do not look secret.
func (v visible) add(table keys.Table) {
	for _, k := range table {
		v[k.Name] = v[k.Name] || k.Type == keys.StringMap || k.Type == keys.BoolMap
		v.add(k.Keys)
	}
}

// clean returns a value of a document with those values that may be seen.
func (s *secrets) clean(value any, see visible) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = s.clean(value[i], see)
		}
	case map[string]any:
		if kind, _ := value["type"].(string); s.plugins.Find(kind) != nil {
			see = s.own
		} else if kind != "" {
			see = s.foreign
		}
		for key, of := range value {
			value[key] = s.cleanKey(key, of, see)
		}
	}
	return value
}

func (s *secrets) cleanKey(key string, of any, see visible) any {
	switch key {
	case "cniArgs":
		pairs, isList := of.([]any)
		if !isList {
			return s.hide(of)
		}
		for i := range pairs {
			pair, _ := pairs[i].([]any)
			name, _ := first(pair).(string)
			if len(pair) != 2 || !isHarmless(name) {
				for j := 1; j < len(pair); j++ {
					pair[j] = s.hide(pair[j])
				}
			}
		}
		return of
	case "capabilityArgs", "runtimeConfig":
		given, isObject := of.(map[string]any)
		if !isObject {
			return s.hide(of)
		}
		for name := range given {
			if !slices.Contains(capabilities, name) {
				given[name] = s.hide(given[name])
			}
		}
		return of
	}
	anyKeys, isSeen := see[key]
	text, isText := of.(string)
	switch {
	case hides(key):
		return s.hide(of)
	case !isSeen:
		return s.mask(of)
	case isText && strings.Contains(text, "://"): // who may use it can be in it
		return s.hide(of)
	case anyKeys:
		entries, _ := of.(map[string]any)
		for name := range entries {
			if hides(name) {
				entries[name] = s.hide(entries[name])
			}
		}
		return of
	}
	return s.clean(of, see)
}

// longName is how long a value may be that is left out, and is not looked for in other texts: such as the names of links.
const longName = 16

// mask leaves out what is not known to be harmless. It is taken for a secret in all texts, unless it is short or an address.
func (s *secrets) mask(value any) any {
	switch value := value.(type) {
	case string:
		_, noAddress := netip.ParseAddr(value)
		_, noPrefix := netip.ParsePrefix(value)
		if len(value) >= longName && noAddress != nil && noPrefix != nil {
			s.note(value)
		}
		return leftOut
	case json.Number:
		return leftOut
	case []any:
		for i := range value {
			value[i] = s.mask(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = s.mask(value[key])
		}
	}
	return value
}

func first(list []any) any {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// hide returns a value with all texts and numbers in it left out.
func (s *secrets) hide(value any) any {
	switch value := value.(type) {
	case string:
		s.note(value)
		return leftOut
	case json.Number:
		s.note(value.String())
		return leftOut
	case []any:
		for i := range value {
			value[i] = s.hide(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = s.hide(value[key])
		}
	}
	return value
}

// masked returns a text that should be JSON and is not, without its values: brackets, commas, colons and names of keys stay.
func masked(text []byte) []byte {
	var out strings.Builder
	rest, before := string(text), rune('{')
	for rest != "" {
		c := rune(rest[0])
		switch {
		case c == '"':
			word := literal(rest)
			rest = rest[len(word):]
			isKey := strings.HasPrefix(strings.TrimSpace(rest), ":") && (before == '{' || before == ',')
			if !isKey {
				word = `"` + leftOut + `"`
			}
			out.WriteString(word)
			before = c
			continue
		case strings.ContainsRune("{}[],:", c):
			before = c
			out.WriteRune(c)
		case unicode.IsSpace(c):
			out.WriteRune(c)
		default:
			before = c
			out.WriteRune('*')
		}
		rest = rest[1:]
	}
	return []byte(out.String())
}

// literal returns the JSON string that a text begins with, or all of it if that does not end.
func literal(text string) string {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return text[:i+1]
		}
	}
	return text
}
