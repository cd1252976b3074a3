package bugreport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/plugins/known"
	"github.com/cnibox/cnibox/test/netlab"
)

// readParts reads a report of some parts.
func readParts(ctx context.Context, o Options, parts []Part) *Manifest {
	s := newSource(o)
	for _, p := range parts {
		s.read(ctx, p)
	}
	return s.end()
}

func wellRead(_ *source, _ context.Context, out *output) {
	out.add("b.txt", []byte("second\n"))
	out.add("../../a.txt", []byte("first, with token=hunter2hunter2\n"))
}

// TestPartsThatFail: whatever becomes of a part, the others are there.
func TestPartsThatFail(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	defer close(hang)
	m := readParts(t.Context(), Options{Version: "1"}, []Part{
		{"hangs", "r", 10 * time.Millisecond, func(_ *source, _ context.Context, out *output) {
			out.add("begun.txt", []byte("begun\n"))
			<-hang
			out.add("late.txt", nil)
		}},
		{"panics", "r", time.Minute, func(*source, context.Context, *output) { panic("oh") }},
		{"fails", "r", time.Minute, func(_ *source, _ context.Context, out *output) { out.fail("it", errors.New("password: swordfish")) }},
		{"well", "r", time.Minute, wellRead},
	})
	var got strings.Builder
	for _, p := range m.Parts {
		for _, f := range p.Files {
			fmt.Fprintf(&got, "%s has %s: %s", p.Part, f.Name, f.content)
		}
		for _, e := range p.Errors {
			fmt.Fprintf(&got, "%s fails: %s\n", p.Part, e)
		}
	}
	want := `^hangs has begun.txt: begun\nhangs fails: .*given up.*\npanics fails: .*error of cnictl: oh\n(.*\n)*?fails fails: it: password: \*\*\*\nwell has a.txt: first, with token=\*\*\*\nwell has b.txt: second\n$`
	if !regexp.MustCompile(want).MatchString(got.String()) {
		t.Errorf("got\n%s\nwant\n%s", &got, want)
	}
}

// TestSizes cuts at the end of lines, what is too large and what comes when the report is full.
func TestSizes(t *testing.T) {
	t.Parallel()
	large := func(_ *source, _ context.Context, out *output) {
		out.add("a.txt", bytes.Repeat([]byte("0123456789\n"), mostOfFile/10))
		out.add("b.txt", bytes.Repeat([]byte("x"), mostOfFile+1))
	}
	m := readParts(t.Context(), Options{}, []Part{{"1", "", time.Minute, large}, {"2", "", time.Minute, large}, {"3", "", time.Minute, large}})
	sum := 0
	for _, p := range m.Parts {
		for _, f := range p.Files {
			sum += f.Bytes
			whole, note, _ := bytes.Cut(f.content, []byte("\n[bugreport: "))
			if f.LeftOut == 0 || !bytes.Contains(note, []byte("more bytes are left out]\n")) || f.Name == "a.txt" && len(p.Files) == 2 && len(whole)%11 > 1 {
				t.Errorf("part %s: %s has %d bytes, %d are said to be left out; its end is %q", p.Part, f.Name, f.Bytes, f.LeftOut, f.content[max(0, f.Bytes-80):])
			}
		}
	}
	if sum > mostInAll+1000 {
		t.Errorf("the report has %d bytes", sum)
	}
}

// TestResultWithConfiguration shows the configuration in libcni's result, which is base64 there, without its secrets.
func TestResultWithConfiguration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"config": "eyJuYW1lIjoiZGVtbyIsInRva2VuIjoiaHVudGVyMiJ9", "ifName": "eth0"}`: `{"config":{"name":"demo","token":"***"},"ifName":"eth0"}`,
		`{"Config": "bm8gSlNPTg=="}`: `{"Config":"***"}`,
		`{"config": {"token": "t"}}`: `{"config":"***"}`,
		`{"config": "not base64 !"}`: `{"config":"***"}`,
	} {
		got, err := newSecrets(known.Plugins).document(withConfiguration([]byte(text)))
		if plain := strings.NewReplacer("\n", "", " ", "").Replace(string(got)); err != nil || plain != want {
			t.Errorf("%s\ngot  %s (error %v)\nwant %s", text, plain, err, want)
		}
	}
}

// TestPrograms reads what programs print until they end, or their time does.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{
		"well": "echo $1; echo aside >&2", "fails": "echo some; echo why >&2; exit 3", "hangs": "echo begun; echo >" + dir + "/begun; sleep infinity & wait",
		"chatty": "yes | head -c 20000000", "env": "echo $LC_ALL ${CNI_TEST_SECRET:-none}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("CNI_TEST_SECRET", "swordfish")
	end := readParts(t.Context(), Options{}, []Part{
		prints("end", time.Minute, time.Minute, []command{{"a.txt", "well x"}, {"a.txt", "no-such"}, {"a.txt", "fails"}, {"b.txt", "env"}, {"c.txt", "chatty"}}),
	}).Parts[0]
	for i, want := range []string{"$ well x\nx\naside\n$ fails\nsome\nwhy\n", "$ env\nC none\n"} {
		if got := string(end.Files[i].content); got != want {
			t.Errorf("%s is %q, want %q", end.Files[i].Name, got, want)
		}
	}
	if !slices.Equal(end.Errors, []string{"fails: exit status 3: why"}) {
		t.Errorf("errors %q", end.Errors)
	}
	if end.Files[2].LeftOut == 0 || end.Files[2].LeftOut > 1<<17 {
		t.Errorf("of what prints much %d bytes were read and left out", end.Files[2].LeftOut)
	}
	if err := unix.Mkfifo(dir+"/begun", 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		_, _ = os.ReadFile(dir + "/begun")
		stop()
	}()
	late, limited := &output{}, &output{}
	if prints("limited", netlab.Patience, time.Millisecond, []command{{"e.txt", "sleep infinity"}}).read(nil, t.Context(), limited); !slices.Equal(limited.errs, []string{"sleep infinity: it did not end in time"}) {
		t.Errorf("of what has a limit: errors %q", limited.errs)
	}
	prints("late", netlab.Patience, netlab.Patience, []command{{"d.txt", "hangs"}}).read(nil, ctx, late)
	if len(late.files) != 1 || string(late.files[0].content) != "$ hangs\nbegun\n" || !slices.Equal(late.errs, []string{"hangs: it did not end in time"}) {
		t.Errorf("of what does not end is there %+v, errors %q", late.files, late.errs)
	}
}

// TestSeen: the manifest names what may be seen, and no key whose name looks secret.
func TestSeen(t *testing.T) {
	t.Parallel()
	seen := readParts(t.Context(), Options{Options: node.Options{Plugins: known.Plugins}}, nil).Seen
	for _, name := range []string{"isDefaultGateway", "rangeStart", "networkName"} {
		if !slices.Contains(seen.Keys, name) || slices.Contains(seen.OthersKeys, name) {
			t.Errorf("%s is in the wrong list of %+v", name, seen)
		}
	}
	if !slices.Contains(seen.OthersKeys, "type") || !slices.Contains(seen.Capabilities, "portMappings") || slices.ContainsFunc(seen.Keys, hides) {
		t.Errorf("%+v", seen)
	}
}

func TestBootParameters(t *testing.T) {
	t.Parallel()
	s := &source{secrets: newSecrets(known.Plugins)}
	got := string(s.bootParameters([]byte("root=/dev/vda ro quiet rd.luks.key=/k:1 my.password=swordfish nokaslr\n")))
	if want := "root=/dev/vda ro quiet rd.luks.key=*** my.password=*** nokaslr\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := string(withoutAddresses([]byte("veth 40960 0 - Live 0xffffffffc0a31000\n"))); got != "veth 40960 0 - Live\n" {
		t.Errorf("modules: %q", got)
	}
}
