package bugreport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// document returns a JSON document without secrets. Of a text that is none the error says so; then it is the text with its form and the
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
	clean, err := json.MarshalIndent(s.clean(document), "", "    ")
	return append(clean, '\n'), err
}

// capabilities are the arguments of runtimes that are no secrets. Others may have all annotations of a pod in them.
var capabilities = []string{"portMappings", "bandwidth", "ips", "ipRanges", "mac", "dns", "aliases", "deviceID", "infinibandGUID"}

// clean returns a value of a document without secrets.
func (s *secrets) clean(value any) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = s.clean(value[i])
		}
	case map[string]any:
		for key, of := range value {
			value[key] = s.cleanKey(key, of)
		}
	}
	return value
}

func (s *secrets) cleanKey(key string, of any) any {
	switch key {
	case "cniArgs":
		pairs, _ := of.([]any)
		for _, p := range pairs {
			pair, _ := p.([]any)
			if name, ok := first(pair).(string); ok && len(pair) == 2 && isHarmless(name) {
				continue
			}
			for i := 1; i < len(pair); i++ {
				pair[i] = s.hide(pair[i])
			}
		}
		return of
	case "capabilityArgs", "runtimeConfig":
		given, _ := of.(map[string]any)
		for name := range given {
			if !slices.Contains(capabilities, name) {
				given[name] = s.hide(given[name])
			}
		}
		return of
	}
	if hides(key) {
		return s.hide(of)
	}
	return s.clean(of)
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

// masked returns a text that is to be JSON and is not, without its values: brackets, commas, colons and names of keys stay.
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
