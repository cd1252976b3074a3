package detach

import (
	"github.com/cnibox/cnibox/pkg/link"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// Start prepares for a Delete that comes later in the same call.
func Start(r *plugin.Request) {
	if r.Deleter != nil {
		r.Deleter.Start()
	}
}

// Delete deletes a link of the host, by the request's Deleter if there is one.
func Delete(r *plugin.Request, index int) error {
	if r.Deleter != nil {
		return r.Deleter.Delete(r.Links(), nil, index)
	}
	return link.Delete(r.Links(), index)
}

// DeleteInside is Delete for a link of the container.
func DeleteInside(r *plugin.Request, index int) error {
	inside, err := r.LinksInside()
	if err != nil {
		return err
	}
	if r.Deleter != nil {
		return r.Deleter.Delete(inside, r.NS(), index)
	}
	return link.Delete(inside, index)
}
