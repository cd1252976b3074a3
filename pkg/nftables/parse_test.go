package nftables

import (
	"strings"
	"testing"

	"github.com/google/nftables/userdata"

	"github.com/cnibox/cnibox/pkg/netlink"
)

func TestCommentIsThatOfTheField(t *testing.T) {
	t.Parallel()
	for _, comment := range []string{"x", "net/0dc1b2e1a7f4/eth0", strings.Repeat("x", MaxComment)} {
		want := userdata.AppendString(nil, userdata.TypeComment, comment)
		if got := commentData(comment); string(got) != string(want) {
			t.Errorf("%q is %x, want %x", comment, got, want)
		}
		if got := parseComment(append(userdata.AppendUint32(nil, userdata.TypeEbtablesPolicy, 1), want...)); got != comment {
			t.Errorf("read %q, want %q", got, comment)
		}
	}
}

func TestParseCommentOfDamagedData(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{
		"none": nil, "one byte": {0}, "no value": {0, 0}, "too long": {0, 5, 'a', 'b'}, "another type": {7, 1, 'a'}, "behind one too long": {7, 9, 0, 2, 'a', 0},
	} {
		if got := parseComment(data); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// FuzzParse gives the parsers of answers whatever bytes there are.
func FuzzParse(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0})
	f.Add(append([]byte{1, 0, 0, 0, 8, 0, 1, 0, 't', 0, 0, 0}, commentData("x")...))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := netlink.Message{Payload: data}
		parseElements(m, func(key []byte, e Found) {
			if len(key) > len(data) || len(e.Data) > len(data) || len(e.Comment) > len(data) {
				t.Error("more than there was")
			}
		})
		if r, ok := parseRule(Table{Name: "t"}, attributes(m)); ok && len(r.Chain)+len(r.Comment)+len(r.Set)+len(r.Jump) > len(data) {
			t.Error("more than there was")
		}
		if len(parseComment(data)) > len(data) {
			t.Error("more than there was")
		}
	})
}
