// Package keys says which keys a configuration may have. Each plugin has a table of its own, beside the code that reads them. The JSON
// Schema, the tables of the manual and the linter are made from it.
package keys

// Key is one key of a JSON object.
type Key struct {
	Name     string
	Type     Type
	Form     Form     // of a String, or of each of Strings
	Words    []string // the only values that a String may have; upper and lower case differ
	Range    *Range   // of an Int
	Required bool     // in every configuration, whatever the other keys are

	Default string // as the manual shows it, in Markdown: "`cni0`", "the master's"; "" is none
	Doc     string // what it does: one line of Markdown, of one or more sentences
	Since   string // the first version of the reference plugins that reads it, "" is 1.0.0 or older; Ours is none of them

	Keys  Table // of an Object, of each of Objects, and of each object in ObjectLists; nil says that any key may be there
	Brief bool  // the manual does not list Keys where it lists this one
}

// Ours in Since says that cnibox alone reads a key. The reference plugins ignore it.
const Ours = "cnibox"

// Table is the keys of an object, in the order in which the manual has them.
type Table []Key

// Find returns the key that is spelled exactly so, nil if there is none.
func (t Table) Find(name string) *Key {
	for i := range t {
		if t[i].Name == name {
			return &t[i]
		}
	}
	return nil
}

// Type is what a key's value has to be.
type Type string

// The types of values. A value of any of them may also be null, which is as good as none.
const (
	String      Type = "string"
	Bool        Type = "bool"
	Int         Type = "int"
	Strings     Type = "list of strings"
	Object      Type = "object"
	Objects     Type = "list of objects"
	ObjectLists Type = "list of lists of objects"
	StringMap   Type = "object of strings" // with any keys
	BoolMap     Type = "object of bools"   // with any keys
)

// Form is what a string has to look like.
type Form string

// The forms of strings.
const (
	Any          Form = ""
	Address      Form = "IP address"
	Prefix       Form = "network"                       // 10.88.0.0/16
	AddressWith  Form = "IP address with prefix length" // 10.88.0.7/16
	AddressOrNet Form = "IP address or network"
	MAC          Form = "MAC address"
	Hardware     Form = "hardware address" // of Ethernet or InfiniBand
	Interface    Form = "interface name"
	Path         Form = "absolute path"
	Device       Form = "path below /sys/devices"
)

// Range is what an Int may be, the ends included.
type Range struct {
	Min, Max int64 // where int has 32 bits, too
	Zero     bool  // so is 0, which is as good as none
	Negative bool  // so is any number below 0, which is as good as none
}

// Set is all that a plugin reads of a configuration.
type Set struct {
	// Own are the keys of the plugin's object; of an IPAM plugin those of the object "ipam".
	Own Table

	// Runtime are the keys of the object "runtimeConfig", which the runtime fills in when "capabilities" asks for them.
	Runtime Table

	// Args are the keys of the object "args.cni".
	Args Table
}
