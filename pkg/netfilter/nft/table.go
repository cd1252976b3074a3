// Package nft keeps what attachments need of netfilter in an nftables table of
// our own, inet cnibox, over netlink.
//
// Its rules are made once (ruleset.go shows them as text). An attachment is
// elements of sets and maps, so that adding and removing one costs the same
// however many there are. The map of owners says which elements an attachment
// has put where; it changes in the same transaction as they do, and is where
// DEL, CHECK and GC begin.
package nft

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/nftables"
)

// TableName is the name of our table, of family inet.
const TableName = "cnibox"

// ErrUnavailable says that the kernel lacks nf_tables or a part of it.
var ErrUnavailable = netfilter.ErrUnavailable

var table = nftables.Table{Family: unix.NFPROTO_INET, Name: TableName}

// Stages of our transactions.
const (
	makeRuleset nftables.Stage = iota + 1 // create the table and all that stays in it
	makePart                              // create a part of it that only some attachments need
	removeElements
	withdrawElements // make rules pass them by
	expireElements
	addElements // to sets of the ruleset
	addToPart   // to sets of a part
	tryExpiry   // find out whether the kernel lets elements expire
)

// Table is our table in one network namespace. One goroutine at a time.
type Table struct {
	conn  *nftables.Conn
	cache string // the directory of libcni's results
}

var (
	_ netfilter.Masquerader = (*Table)(nil)
	_ netfilter.PortMapper  = (*Table)(nil)
)

// Open opens a socket in the calling thread's namespace. The table itself is
// made by the first that puts something in it.
func Open() (*Table, error) {
	conn, err := nftables.Open()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, unavailable(err)
	}
	if err != nil {
		return nil, err
	}
	return &Table{conn: conn, cache: netfilter.ResultCache}, nil
}

// Conn returns the table's connection, for others who ask nf_tables something
// before it is closed.
func (t *Table) Conn() *nftables.Conn { return t.conn }

// Close closes the socket. After something was removed the kernel makes the
// caller wait until it has freed that, some milliseconds.
func (t *Table) Close() { t.conn.Close() }

// Available tries whether the kernel takes our ruleset, without leaving
// anything in it.
func (t *Table) Available() error {
	found, err := t.conn.HasSet(&owners)
	switch {
	case err != nil && nftables.Lacking(err):
		return unavailable(err)
	case found || err != nil:
		return err
	}
	tx := &nftables.Transaction{}
	appendRuleset(tx)
	err = t.conn.Probe(tx)
	if errors.Is(err, unix.EEXIST) {
		return nil // made by another process just now
	}
	return explain(tx, err)
}

// unavailableError is a types.Error that is ErrUnavailable too.
type unavailableError struct {
	shown types.Error
	cause error
}

func unavailable(cause error) error {
	return &unavailableError{
		shown: types.Error{
			Code: types.ErrPluginNotAvailable,
			Msg:  "nftables can't be used: " + cause.Error(),
			Details: "the kernel needs nf_tables with NAT in family inet (Linux 5.2; CONFIG_NF_TABLES_INET, CONFIG_NFT_NAT, CONFIG_NFT_MASQ, " +
				"CONFIG_NFT_CT, CONFIG_NFT_FIB_INET) or must be able to load its modules (nft_chain_nat, nft_masq, nft_ct, nft_fib_inet)",
		},
		cause: cause,
	}
}

func (e *unavailableError) Error() string { return e.shown.Error() }

// Unwrap returns the error that a runtime is shown, the class, and the cause.
func (e *unavailableError) Unwrap() []error { return []error{&e.shown, ErrUnavailable, e.cause} }

// explain makes an error out of a refusal that is about the kernel rather than
// about what is in it.
func explain(tx *nftables.Transaction, err error) error {
	switch s := tx.Failed(err); {
	case err == nil:
		return nil
	case s == 0 && nftables.Lacking(err), s != 0 && errors.Is(err, unix.EOPNOTSUPP):
		return unavailable(err)
	case (s == makeRuleset || s == makePart) && errors.Is(err, unix.ENOENT):
		return unavailable(err) // a kind of chain or expression that there is not
	}
	return err
}

// contended is the error of a change that met others too often.
func contended(what string, last error) error {
	return &types.Error{
		Code:    types.ErrTryAgainLater,
		Msg:     fmt.Sprintf("%s: given up after %d attempts: %v", what, nftables.Tries, last),
		Details: "other processes change table inet " + TableName + " all the time; look who with `nft monitor`",
	}
}
