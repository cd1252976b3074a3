package dhcp

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// FuzzConfig reads any configuration: what is accepted can be sent.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"ipam":{"request":[{"option":"121"},{"option":"host-name","skipDefault":true}],"priority":7}}`), "")
	f.Add([]byte(`{"ipam":{"families":["ipv4","ipv6"],"provide":[{"option":"user-class","value":"a","fromArg":"B"}]}}`), "B=c;D")
	f.Add([]byte(`{"ipam":{"daemonSocketPath":"x","families":[],"request":7}}`), ";=;")
	f.Fuzz(func(t *testing.T, config []byte, args string) {
		o, err := conf.Parse(config)
		if err != nil {
			return
		}
		options, err := Read(o, args)
		if err != nil {
			return
		}
		if !options.IPv4 && !options.IPv6 || !strings.HasPrefix(options.Socket, "/") || bytes.ContainsAny(options.Request, "\x00\xff") {
			t.Errorf("%+v", options)
		}
		for code, value := range options.Provide {
			if code == 0 || code == 255 || value == "" || len(value) > mostValue {
				t.Errorf("option %d: %q", code, value)
			}
		}
	})
}

// FuzzRequest reads any request: what is accepted says who it is about, and reads the same when it is written.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"command":"ADD","network":"lan","containerID":"web","ifname":"eth0","netns":"/run/netns/web","args":"A=b",
		"ipam":{"type":"dhcp"}}`))
	f.Add([]byte(`{"command":"STATUS"}`))
	f.Add([]byte(`{"command":"DEL","network":"../x","containerID":"web","ifname":"a/b"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := conf.Parse(data)
		if err != nil {
			return
		}
		q, err := ParseRequest(o)
		if err != nil {
			return
		}
		if strings.ContainsAny(q.Network+q.ContainerID+q.IfName, "/") {
			t.Errorf("%q", q.Key)
		}
		var line bytes.Buffer
		if err := WriteLine(&line, q.Document()); err != nil {
			t.Fatal(err)
		}
		again, err := ReadLine(&line)
		if err != nil {
			t.Fatalf("%v: %s", err, q.Document().JSON())
		}
		r, err := ParseRequest(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(q.Document().JSON()), string(r.Document().JSON())); diff != "" {
			t.Error(diff)
		}
	})
}

// TestNoAnswer: a call that the daemon has not answered in a way that can be read may be repeated.
func TestNoAnswer(t *testing.T) {
	err := noAnswer(t.Context(), "/run/cni/dhcp.sock", io.ErrUnexpectedEOF)
	if !plugin.IsTryAgain(err) || !strings.Contains(err.Error(), "/run/cni/dhcp.sock") {
		t.Error(err)
	}
}
