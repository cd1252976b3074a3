// Package nft keeps what attachments need of netfilter in an nftables table of
// our own, inet cnibox, over netlink.
//
// Its rules are made once (ruleset.go shows them as text). An attachment is
// elements of sets and maps, so that adding and removing one costs the same
// however many there are. The map owners_v1 says which elements an attachment
// has put where; it changes in the same transaction as they do, and is where
// DEL, CHECK and GC begin.
package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netfilter"
	"github.com/cnibox/cnibox/pkg/netlink"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// TableName is the name of our table, of family inet.
const TableName = "cnibox"

// ErrUnavailable says that the kernel lacks nf_tables or a part of it.
var ErrUnavailable = netfilter.ErrUnavailable

// tries bounds how often a change is attempted again because another process
// changed the same objects at the same time.
const tries = 16

// Table is our table in one network namespace. One goroutine at a time.
type Table struct {
	conn *netlink.Conn
}

var _ netfilter.Backend = (*Table)(nil)

// Open opens a socket in the calling thread's namespace. The table itself is
// made by the first that puts something in it.
func Open() (*Table, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, unavailable(err)
	}
	if err != nil {
		return nil, err
	}
	return &Table{conn}, nil
}

// Close closes the socket. After something was removed the kernel makes the
// caller wait until it has freed that, some milliseconds.
func (t *Table) Close() { t.conn.Close() }

// Available tries whether the kernel takes our ruleset, without leaving
// anything in it.
func (t *Table) Available() error {
	found, err := t.hasRuleset()
	if found || err != nil {
		return err
	}
	tx := &transaction{}
	appendRuleset(tx)
	err = t.probe(tx)
	if errors.Is(err, unix.EEXIST) {
		return nil // made by another process just now
	}
	return tx.explain(err)
}

// unavailableError is a plugin.Error that is ErrUnavailable too.
type unavailableError struct {
	shown plugin.Error
	cause error
}

func unavailable(cause error) error {
	return &unavailableError{
		shown: plugin.Error{
			Code: plugin.CodeNotAvailable,
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

// lacking tells whether the kernel refused a request because it has no
// nf_tables at all. EINVAL is how it refuses messages for a subsystem of
// nfnetlink that it does not have.
func lacking(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// contended is the error of a change that met others too often.
func contended(what string, last error) error {
	return &plugin.Error{
		Code:    plugin.CodeTryAgainLater,
		Msg:     fmt.Sprintf("%s: given up after %d attempts: %v", what, tries, last),
		Details: "other processes change table inet " + TableName + " all the time; look who with `nft monitor`",
	}
}
