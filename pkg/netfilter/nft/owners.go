package nft

import (
	"context"

	"github.com/google/nftables"
)

// Owners returns the keys of the attachments that have something in our tables, as their comments have them, with the table.
func Owners(ctx context.Context) (map[string]string, error) {
	c, err := Open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	owners := map[string]string{}
	err = Change(ctx, "list what attachments have in nftables", func() error { // a list that is interrupted by a change may lack something
		for _, is := range []nftables.Table{HostTable, ForwardTable, BridgeTable} {
			t := c.table(is)
			holdings, err := t.holdings()
			if err != nil {
				return err
			}
			for o := range holdings {
				owners[o.comment] = t.String()
			}
		}
		return nil
	})
	return owners, err
}
