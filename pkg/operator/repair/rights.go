package repair

import (
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/operator/node"
)

// rights are what of an attachment may be changed: the values of a network's key "repair".
type rights string

const (
	rightsHost rights = "host" // what the host has: what is in the container is the container's
	rightsAll  rights = "all"  // what is in the container, too
	rightsNone rights = "none" // nothing
)

// rightsOf returns those by the configuration that its ADD had. A word that is not known gives no more than the default.
func rightsOf(a *node.Attachment, config *conf.Object) rights {
	word := ""
	config.String("repair", &word)
	switch {
	case word == string(rightsNone) || IsLeft(a):
		return rightsNone
	case word == string(rightsAll):
		return rightsAll
	}
	return rightsHost
}

// IsLeftAlone reports whether somebody wants an attachment left alone.
func IsLeftAlone(a *node.Attachment) bool { return rightsTo(a) == rightsNone }

// MayEnter reports whether what is missing in an attachment's container is put back there.
func MayEnter(a *node.Attachment) bool { return rightsTo(a) == rightsAll }

// rightsTo returns those by the result that libcni has of an attachment, the default if none can be read.
func rightsTo(a *node.Attachment) rights {
	if a.Result == nil {
		return rightsHost
	}
	config, err := conf.Parse(a.Result.Config)
	if err != nil {
		return rightsHost
	}
	return rightsOf(a, config)
}
