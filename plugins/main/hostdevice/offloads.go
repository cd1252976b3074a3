package hostdevice

import (
	"slices"
	"strings"

	"github.com/safchain/ethtool"
)

// offloadsOf returns those of a device's offloads that can be switched, with blanks between them, and "-" before those that are not wanted. It is ""
// if they are not known.
func offloadsOf(name string) string {
	var list []string
	_ = withEthtool(func(e *ethtool.Ethtool) error {
		features, err := e.FeaturesWithState(name)
		for feature, is := range features {
			switch {
			case is.Available && is.Requested:
				list = append(list, feature)
			case is.Available:
				list = append(list, "-"+feature)
			}
		}
		return err
	})
	slices.Sort(list)
	return strings.Join(list, " ")
}

// setOffloads switches offloads as they were.
func setOffloads(name, offloads string) error {
	if offloads == "" {
		return nil
	}
	wanted := map[string]bool{}
	for _, feature := range strings.Fields(offloads) {
		feature, isOff := strings.CutPrefix(feature, "-")
		wanted[feature] = !isOff
	}
	return withEthtool(func(e *ethtool.Ethtool) error { return e.Change(name, wanted) })
}

func withEthtool(do func(*ethtool.Ethtool) error) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	return do(e)
}
