package probe

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/cnibox/cnibox/pkg/names"
	"github.com/cnibox/cnibox/pkg/operator/agent/resolver"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// everybodyKnows is a name for which no server asks another, and that is on no list.
const everybodyKnows = "localhost"

// query returns a question to a name server, and what is in the answer too.
func query(name string) (question, answer []byte) {
	parsed, err := dnsmessage.NewName(strings.TrimSuffix(cmp.Or(name, everybodyKnows), ".") + ".")
	if err != nil {
		parsed = dnsmessage.MustNewName(everybodyKnows + ".") // CheckName has refused it before
	}
	id := make([]byte, 2)
	_, _ = rand.Read(id) // never fails
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: binary.BigEndian.Uint16(id), RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: parsed, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	question, err = m.Pack()
	if err != nil {
		return nil, nil
	}
	const header = 12
	return question, question[header:]
}

// CheckName reports whether a name can be asked for.
func CheckName(name string) error {
	if question, _ := query(name); name != "" && !strings.Contains(string(question), strings.SplitN(name, ".", 2)[0]) {
		return fmt.Errorf("%q is no name of a host", name)
	}
	return nil
}

// checkName makes sure that a name server knows the name, if one was given. Otherwise it is enough that it answers; where it should be the agent, that it
// refuses a name that is not on the list.
func (t *Test) checkName(answer []byte) error {
	if t.name == "" && !t.asksAgent {
		return nil
	}
	var p dnsmessage.Parser
	header, err := p.Start(answer)
	if err != nil {
		return fmt.Errorf("read the name server's answer: %w", err)
	}
	if t.name == "" {
		if header.RCode != dnsmessage.RCodeRefused {
			return refusal(fmt.Sprintf("another DNS server than the agent answers at %s: containers reach nothing by the names on their lists", t.To))
		}
		return nil
	}
	if header.RCode != dnsmessage.RCodeSuccess {
		return refusal(fmt.Sprintf("%s answers that it can't resolve %s (%s)", t.To, t.name, strings.TrimPrefix(header.RCode.String(), "RCode")))
	}
	return nil
}

// hasNamesOnLists reports whether the agent gets all that the containers ask of name servers.
func (w *subject) hasNamesOnLists() bool {
	r, err := names.Read(plugin.Key{Network: w.list.Name, ContainerID: w.a.ID, IfName: ifName}, names.Listed)
	return err == nil && r != nil && resolver.ListsOf(r).HasNames()
}

// refusal is an answer that is not what was hoped for: no packet was lost.
type refusal string

func (r refusal) Error() string { return string(r) }
