// Package nft keeps what attachments need of netfilter in nftables tables of our own, over netlink.
//
// A table has rules that are the same for all attachments. An attachment is elements of its sets and maps, so that adding and
// removing one costs the same however many there are. The map of owners says which elements an attachment has; it changes in the
// same transaction as they do, and is where DEL, CHECK and GC begin. A process that changes a table looks first at what is there, and
// holds a lock from then until the change is made.
package nft

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// Conn is a connection to the nf_tables of one network namespace. One goroutine at a time.
type Conn struct {
	*nftables.Conn               // transactions and lists
	socket         *netlink.Conn // the same connection, for questions that the library can't ask
	batch          *Batch        // that Repair leaves work to; nil if there is none
	lacking        error         // why there is none: the kernel has no netfilter over netlink, and so none of our tables or others'
}

// Open opens a connection in the calling thread's namespace.
func Open() (*Conn, error) {
	c := &Conn{}
	var err error
	c.Conn, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(s *netlink.Conn) error {
		const room = 64 << 20           // a transaction is sent as a whole, and has an answer for each message
		const longest = 5 * time.Minute // for what the kernel never answers
		c.socket = s
		return errors.Join(s.SetWriteBuffer(room), s.SetReadBuffer(room), s.SetOption(netlink.ExtendedAcknowledge, true),
			s.SetDeadline(time.Now().Add(longest)))
	}))
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return &Conn{lacking: err}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open a socket of nf_tables: %w", err)
	}
	return c, nil
}

// Close ends the connection.
func (c *Conn) Close() {
	if c.lacking == nil {
		_ = c.CloseLasting()
	}
}

// question asks for one object of a table by one of NFT_MSG_GET…, which all have the table's name as their first attribute.
func question(message uint16, t nftables.Table, attrs ...netlink.Attribute) netlink.Message {
	data, _ := netlink.MarshalAttributes(append([]netlink.Attribute{textAttr(unix.NFTA_TABLE_NAME, t.Name)}, attrs...)) // refuses 64 KiB only
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | message), Flags: netlink.Request},
		Data:   append([]byte{byte(t.Family), unix.NFNETLINK_V0, 0, 0}, data...),
	}
}

func chainQuestion(t nftables.Table, name string) netlink.Message {
	return question(unix.NFT_MSG_GETCHAIN, t, textAttr(unix.NFTA_CHAIN_NAME, name))
}

func textAttr(number uint16, text string) netlink.Attribute {
	return netlink.Attribute{Type: number, Data: append([]byte(text), 0)}
}

func nested(number uint16, inside netlink.Attribute) netlink.Attribute {
	data, _ := netlink.MarshalAttributes([]netlink.Attribute{inside}) // refuses lengths of 64 KiB only
	return netlink.Attribute{Type: number | unix.NLA_F_NESTED, Data: data}
}

// ask returns the attributes of what each question asks for, nil for what is not there. Some questions share a message to the
// kernel: all of their answers have to fit into the socket's buffer.
func (c *Conn) ask(questions ...netlink.Message) ([]map[uint16][]byte, error) {
	const atOnce = 64
	if c.lacking != nil {
		return nil, kernelError("ask nf_tables", c.lacking)
	}
	answers := make([]map[uint16][]byte, 0, len(questions))
	var refusal error
	for part := range slices.Chunk(questions, atOnce) {
		if _, err := c.socket.SendMessages(part); err != nil {
			return nil, fmt.Errorf("ask nf_tables: %w", err)
		}
		for range part {
			replies, err := c.socket.Receive()
			var answer map[uint16][]byte
			switch {
			case errors.Is(err, unix.EPERM):
				return nil, kernelError("ask nf_tables", err) // of several questions one is answered
			case err != nil && !errors.Is(err, unix.ENOENT):
				refusal = err
			case err == nil && len(replies) == 1 && len(replies[0].Data) >= 4:
				answer = attributes(replies[0].Data[4:])
			}
			answers = append(answers, answer)
		}
	}
	return answers, kernelError("ask nf_tables", refusal)
}

// attributes returns the values of attributes by their numbers.
func attributes(data []byte) map[uint16][]byte {
	values := map[uint16][]byte{}
	if d, err := netlink.NewAttributeDecoder(data); err == nil {
		for d.Next() {
			values[d.Type()] = d.Bytes()
		}
	}
	return values
}

// HasTables reports which tables, of anybody, are there. Without nf_tables none is.
func (c *Conn) HasTables(tables ...nftables.Table) ([]bool, error) {
	var questions []netlink.Message
	for _, t := range tables {
		questions = append(questions, question(unix.NFT_MSG_GETTABLE, t))
	}
	return c.exist(questions...)
}

// HasChains is HasTables for chains of a table.
func (c *Conn) HasChains(t nftables.Table, chains ...string) ([]bool, error) {
	var questions []netlink.Message
	for _, name := range chains {
		questions = append(questions, chainQuestion(t, name))
	}
	return c.exist(questions...)
}

func (c *Conn) exist(questions ...netlink.Message) ([]bool, error) {
	there := make([]bool, len(questions))
	answers, err := c.ask(questions...)
	if isLacking(err) {
		return there, nil
	}
	for i, a := range answers {
		there[i] = a != nil
	}
	return there, err
}

// Commit makes the changes that were collected, all or none. what is for the error: what the changes are for.
func (c *Conn) Commit(what string) error { return kernelError(what, c.Flush()) }

// DeleteRules adds the removal of rules to the changes.
func (c *Conn) DeleteRules(rules []*nftables.Rule) {
	for _, r := range rules {
		_ = c.DelRule(r) // fails for a rule without a handle only
	}
}

// TargetOf returns the chain that a rule jumps to, "" if it does not.
func TargetOf(r *nftables.Rule) (chain string) {
	for _, e := range r.Exprs {
		if v, ok := e.(*expr.Verdict); ok {
			chain = v.Chain
		}
	}
	return chain
}

// CommentIn reads the comment in the user data of a rule or an element, in which it has the same number.
func CommentIn(userData []byte) string {
	text, _ := userdata.GetString(userData, userdata.TypeComment)
	return text
}

// kernelError says in an error of the kernel what was tried. Of several, which the kernel gives when one causes the next, it keeps the
// first.
func kernelError(what string, err error) error {
	var several interface{ Unwrap() []error }
	for errors.As(err, &several) {
		err = several.Unwrap()[0]
	}
	var of *netlink.OpError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return plugin.Errorf(plugin.NotPermitted, "%s: %v", what, unix.EPERM)
	case errors.As(err, &of) && of.Message != "":
		return fmt.Errorf("%s: %w (%s)", what, of.Err, of.Message)
	case errors.As(err, &of):
		err = of.Err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// isLacking reports whether the kernel refused a request because it has no nf_tables, or not that part of it. EINVAL is how it refuses
// messages for a subsystem of nfnetlink that it does not have.
func isLacking(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT)
}
