package nft

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// check compares what the owner has with what it claims, and makes sure that the
// table has its rules.
func (t *table) check(o owner, claims []claim) error {
	records, err := t.held(o)
	if err != nil {
		return err
	}
	if len(records) == 0 && len(claims) > 0 {
		if there, err := t.conn.HasTables(t.table); err == nil && !there[0] {
			return plugin.Errorf(fmt.Sprintf("`nft flush ruleset` (a reload of nftables.service does that) or `nft delete table %s` took it: "+
				"restart the containers; the next ADD makes the table again", t), "table %s is missing, and with it %s", t, t.lost)
		}
	}
	if want := recordsOf(claims); !slices.Equal(records, want) {
		return t.mismatch("%s holds %v, and should hold %v", o.comment, records, want)
	}
	wanted := t.claimed(o, claims)
	there, err := t.look(wanted)
	if err != nil {
		return err
	}
	for i, e := range wanted {
		f := there[i]
		switch {
		case f.isGone():
			return t.mismatch("%s is not in %s", e.what, e.set.Name)
		case f.comment != e.comment && e.sharing == alone:
			return t.mismatch("%s in %s belongs to %s", e.what, e.set.Name, f.comment)
		case !bytes.Equal(f.data, e.data):
			return t.mismatch("%s in %s leads elsewhere", e.what, e.set.Name)
		}
	}
	missing, lost, err := t.incomplete(t.partsOf(records))
	switch {
	case err != nil:
		return err
	case lost && len(claims) > 0:
		return plugin.Errorf(fmt.Sprintf("`nft flush table %s` or something like it took them: the next ADD makes them again", t), "table %s: all its rules are missing, and so %s", t, t.lost)
	case len(missing) > 0 && len(claims) > 0:
		return plugin.Errorf(fmt.Sprintf("something changed it after ADD: the next ADD makes them again; see `nft list table %s`", t), "table %s: chain %s has not all of its rules", t, strings.Join(missing, ", "))
	}
	return nil
}
