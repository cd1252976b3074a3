package probe

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// everybodyKnows is a name for which no server asks another.
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

// checkName makes sure that a name server knows the name, if one was given. Otherwise it is enough that it answers.
func (t *Test) checkName(answer []byte) error {
	if t.name == "" {
		return nil
	}
	var p dnsmessage.Parser
	header, err := p.Start(answer)
	if err != nil {
		return fmt.Errorf("read the name server's answer: %w", err)
	}
	if header.RCode != dnsmessage.RCodeSuccess {
		return refusal(fmt.Sprintf("%s answers that it can't resolve %s (%s)", t.To, t.name, strings.TrimPrefix(header.RCode.String(), "RCode")))
	}
	return nil
}

// refusal is an answer that is not what was hoped for: no packet was lost.
type refusal string

func (r refusal) Error() string { return string(r) }
