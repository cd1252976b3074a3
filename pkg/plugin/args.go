package plugin

import (
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// Arguments reads CNI_ARGS, "KEY=value;KEY=value", and returns the values of the keys a plugin knows. Another key is an error
// unless IgnoreUnknown=1 is among them (a convention of the reference plugins: every plugin of a chain gets the same arguments). A
// trailing semicolon and an equals sign within a value are fine.
func Arguments(args string, known ...string) (map[string]string, error) {
	values := map[string]string{}
	var unknown []string
	ignore := false
	for pair := range strings.SplitSeq(args, ";") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		switch {
		case !ok || key == "":
			return nil, argsError("write it as KEY=value;KEY=value", "CNI_ARGS: invalid pair "+strconv.Quote(pair))
		case key == "IgnoreUnknown":
			b, err := strconv.ParseBool(strings.ToLower(value))
			if err != nil {
				return nil, argsError("set it to 1, 0, true or false", "CNI_ARGS: IgnoreUnknown is "+strconv.Quote(value))
			}
			ignore = b
		case slices.Contains(known, key):
			values[key] = value
		default:
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 && !ignore {
		return nil, argsError("remove them or add IgnoreUnknown=1; known here: "+strings.Join(slices.Concat(known, []string{"IgnoreUnknown"}), ", "),
			"CNI_ARGS: unknown keys "+strings.Join(unknown, ", "))
	}
	return values, nil
}

func argsError(remedy, msg string) error {
	return &types.Error{Code: types.ErrInvalidEnvironmentVariables, Msg: msg, Details: remedy}
}
