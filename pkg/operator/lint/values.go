package lint

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/cnibox/cnibox/pkg/keys"
	"github.com/cnibox/cnibox/pkg/operator/finding"
)

// reportMissing says which keys an object has to have.
func (f *file) reportMissing(v *value, missing []string) {
	for _, name := range missing {
		if name != "ipam" { // checkIPAM says that
			f.report(missingKey, span{v.at, v.at + 1, join(v.path, name)}, strconv.Quote(name)+": …", nil, "the key %q is missing", name)
		}
	}
}

var (
	outOfRange = codes.Declare(finding.Code{Name: "out-of-range", Severity: finding.Error,
		Meaning: "A number is too large or too small.",
		Remedy:  "a number within the bounds"})
	wrongForm = codes.Declare(finding.Code{Name: "wrong-form", Severity: finding.Error,
		Meaning: "A string does not have the form that the plugin wants, such as that of an address.",
		Remedy:  "a value of that form"})
	wrongWord = codes.Declare(finding.Code{Name: "wrong-word", Severity: finding.Error, Fixable: true,
		Meaning: "The key takes certain words only.",
		Remedy:  "one of them"})
)

// reportValue says what a key wants in place of a value.
func (f *file) reportValue(v *value, k *keys.Key) {
	if k == nil {
		return
	}
	element := k.Type == keys.Strings && v.kind != '[' && strings.HasSuffix(v.path, "]")
	want := k.Type
	if element {
		want = keys.String
	}
	if !fits(v, want) {
		fix, edits := f.convert(v, want, k)
		f.report(wrongType, v.span, fix, edits, "%q has to be %s, and is %s", k.Name, wanted(k, want), v.describe())
		return
	}
	switch {
	case want == keys.Int:
		f.report(outOfRange, v.span, "", nil, "%q has to be %s, and is %s", k.Name, wanted(k, want), v.text)
	case k.Words != nil:
		fix, edits := nearestWord(v.text, k.Words), []edit(nil)
		if fix != "" {
			fix = strconv.Quote(fix)
			if strings.EqualFold(fix, strconv.Quote(v.text)) {
				edits = []edit{{v.at, v.end, fix}}
			}
		}
		f.report(wrongWord, v.span, fix, edits, "%q has to be %s, and is %q", k.Name, wanted(k, want), shorten(v.text))
	case strings.HasPrefix(v.text, "usePodCidr"): // Calico puts the node's subnet in place of it
	default:
		if p, err := netip.ParsePrefix(v.text); err == nil && p != p.Masked() && k.Form != keys.Address {
			f.reportHostBits(v, p)
			return
		}
		f.report(wrongForm, v.span, "", nil, "%q has to be %s, and is %q", k.Name, wanted(k, want), shorten(v.text))
	}
}

var hostBits = codes.Declare(finding.Code{Name: "host-bits", Severity: finding.Error, Fixable: true,
	Meaning: "A network is written with an address of a host in it. Plugins and the kernel refuse that.",
	Remedy:  "the network's own address"})

func (f *file) reportHostBits(v *value, p netip.Prefix) {
	fix := strconv.Quote(p.Masked().String())
	f.report(hostBits, v.span, fix, []edit{{v.at, v.end, fix}}, "%s is an address in the network %s, not the network", v.text, p.Masked())
}

// fits reports whether a value has a type, with lists and objects looked at from the outside.
func fits(v *value, t keys.Type) bool {
	switch t {
	case keys.String:
		return v.kind == '"'
	case keys.Bool:
		return v.kind == 't' || v.kind == 'f'
	case keys.Int:
		_, err := strconv.ParseInt(v.text, 10, 64)
		return v.kind == '0' && (err == nil || errors.Is(err, strconv.ErrRange))
	case keys.Strings, keys.Objects, keys.ObjectLists:
		return v.kind == '['
	default:
		return v.kind == '{'
	}
}

// convert writes a key's value in another type, if there is one way only. A number is no address and no word, in quotes neither.
func (f *file) convert(v *value, want keys.Type, k *keys.Key) (fix string, edits []edit) {
	raw := string(f.Text[v.at:v.end])
	switch lower := strings.ToLower(v.text); {
	case v.kind == '"' && want == keys.Int && isNumber(v.text):
		fix = v.text
	case v.kind == '"' && want == keys.Bool && (lower == "true" || lower == "false"):
		fix = lower
	case want == keys.String && k.Form == keys.Any && k.Words == nil && (v.kind == '0' || v.kind == 't' || v.kind == 'f'):
		fix = strconv.Quote(v.text)
	case want == keys.Strings && v.kind == '"', want == keys.Objects && v.kind == '{':
		fix = "[" + raw + "]"
	case want == keys.ObjectLists && v.kind == '{':
		fix = "[[" + raw + "]]"
	default:
		return "", nil
	}
	return fix, []edit{{v.at, v.end, fix}}
}

func isNumber(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && strconv.Itoa(n) == text
}

// wanted says what a value of a key has to be.
func wanted(k *keys.Key, t keys.Type) string {
	switch {
	case t == keys.Int && k.Range != nil && k.Range.Max >= 1<<62:
		return fmt.Sprintf("a whole number of at least %d", k.Range.Min)
	case t == keys.Int && k.Range != nil:
		return fmt.Sprintf("a whole number from %d to %d", k.Range.Min, k.Range.Max)
	case t == keys.Bool:
		return "true or false"
	case t == keys.String && k.Words != nil:
		return "one of " + strings.Join(k.Words, ", ")
	case t == keys.String && k.Form != keys.Any:
		return examples[k.Form]
	case t == keys.Strings:
		return "a list of strings"
	}
	return map[keys.Type]string{
		keys.String: "a string", keys.Int: "a whole number", keys.Object: "an object", keys.Objects: "a list of objects",
		keys.ObjectLists: "a list of lists of objects", keys.StringMap: "an object of strings", keys.BoolMap: "an object of true and false",
	}[t]
}

// examples say what a form is.
var examples = map[keys.Form]string{
	keys.Address:      "an IP address such as 10.88.0.1",
	keys.Prefix:       "a network such as 10.88.0.0/16",
	keys.AddressWith:  "an address with its prefix length, such as 10.88.0.7/16",
	keys.AddressOrNet: "an address such as 10.88.0.5 or a network such as 10.88.0.0/28",
	keys.MAC:          "a MAC address such as 02:00:00:12:34:56",
	keys.Interface:    "the name of an interface, of 1 to 15 characters",
	keys.Path:         "an absolute path",
	keys.Hardware:     "a hardware address such as 02:00:00:12:34:56",
	keys.Device:       "a path below /sys/devices/",
}
