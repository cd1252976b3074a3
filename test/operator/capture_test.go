package operator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/cnibox/cnibox/test/netlab"
)

// capturing is a capture under way.
type capturing struct {
	*operator
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr *bufio.Reader
}

// capture starts a capture and returns when it is under way.
func (o *operator) capture(args ...string) *capturing {
	o.Helper()
	c := &capturing{operator: o, cmd: o.host.Command(netlab.Cnictl(o), append([]string{"capture"}, args...)...)}
	c.cmd.Stdout = &c.stdout
	read, write := io.Pipe()
	c.cmd.Stderr, c.stderr = write, bufio.NewReader(read)
	if err := o.host.Start(c.cmd); err != nil {
		o.Fatal(err)
	}
	if line, err := c.stderr.ReadString('\n'); err != nil || !strings.HasPrefix(line, "capturing on ") {
		o.Fatal(line, err)
	}
	return c
}

// end tells it to end, unless signal is 0, and returns the packets, and the last line that it says.
func (c *capturing) end(signal syscall.Signal) (printed, last string) {
	c.Helper()
	if err := c.cmd.Process.Signal(signal); err != nil {
		c.Fatal(err)
	}
	last, err := c.stderr.ReadString('\n')
	if err != nil {
		c.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, c.stderr) }()
	if err := c.cmd.Wait(); err != nil {
		c.Errorf("%v: %s", err, last)
	}
	return c.stdout.String(), last
}

// TestCapture prints a line for each packet, seen from the container and from the host.
func TestCapture(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	pod, address := o.attach("web")
	pod.ServeUDP(t, address+":4000")
	inside, outside, tcp := o.capture("web", "--protocol", "udp,icmp", "--address", address), o.capture(address, "--host-end", "--port", "4000"), o.capture("web", "--protocol", "tcp")
	if _, err := o.host.DialUDP(address+":4000", netlab.Patience); err != nil {
		t.Fatal(err)
	}
	if err := o.host.Ping(address, netlab.Patience); err != nil {
		t.Fatal(err)
	}
	printed, last := inside.end(syscall.SIGINT)
	for _, part := range []string{" in  10.88.0.1:", " > " + address + ":4000 udp 6 of data, 48 bytes", " out " + address + ":4000 > 10.88.0.1:", "icmp EchoRequest", "icmp EchoReply"} {
		if !strings.Contains(printed, part) {
			t.Errorf("%q is missing in:\n%s", part, printed)
		}
	}
	if last != "4 packets, 0 dropped\n" {
		t.Error(last)
	}
	printed, last = outside.end(syscall.SIGTERM)
	if !strings.Contains(printed, " out 10.88.0.1:") || !strings.Contains(printed, " in  "+address+":4000 > ") || strings.Contains(printed, "icmp") || last != "2 packets, 0 dropped\n" {
		t.Errorf("%s%s", printed, last)
	}
	if printed, last = tcp.end(syscall.SIGINT); printed != "" || last != "0 packets, 0 dropped\n" {
		t.Errorf("%s%s", printed, last)
	}
}

// TestCaptureFile writes what others read.
func TestCaptureFile(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	pod, address := o.attach("web")
	pod.ServeTCP(t, address+":80")
	file, piped := o.capture("web", "-w", "/run/web.pcapng", "--protocol", "tcp"), o.capture("web", "-w", "-", "--port", "80")
	if _, err := o.host.DialTCP(address+":80", netlab.Patience); err != nil {
		t.Fatal(err)
	}
	_, last := file.end(syscall.SIGINT)
	piped.end(syscall.SIGINT)
	if mode := o.host.MustRun(t, "stat", "-c", "%a", "/run/web.pcapng"); mode != "600\n" {
		t.Errorf("the file's mode is %s", mode)
	}
	for name, content := range map[string]string{"file": o.host.MustRun(t, "cat", "/run/web.pcapng"), "pipe": piped.stdout.String()} {
		r, err := pcapgo.NewNgReader(strings.NewReader(content), pcapgo.DefaultNgReaderOptions)
		if err != nil {
			t.Fatal(name, err)
		}
		if i, err := r.Interface(0); err != nil || i.Name != "eth0" || !strings.Contains(i.Description, "demo/web/eth0") {
			t.Errorf("%s: interface %+v, %v", name, i, err)
		}
		first, packets := "", 0
		for {
			data, _, err := r.ReadPacketData()
			if err != nil {
				break
			}
			packet := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
			if tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP); ok && packets == 0 && tcp.SYN && !tcp.ACK && tcp.DstPort == 80 {
				first = "SYN"
			}
			packets++
		}
		if first != "SYN" || packets < 6 || name == "file" && last != counted(packets)+" packets, 0 dropped\n" {
			t.Errorf("%s: %d packets, the first %q; %s", name, packets, first, last)
		}
	}
}

func counted(n int) string { text, _ := json.Marshal(n); return string(text) }

// TestCaptureEnds ends by itself, and when the container does.
func TestCaptureEnds(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	_, address := o.attach("web")
	three := o.capture("web", "-c", "3", "--protocol", "icmp", "--json")
	for range 2 {
		if err := o.host.Ping(address, netlab.Patience); err != nil {
			t.Fatal(err)
		}
	}
	printed, last := three.end(0)
	var seen struct{ Direction, Source, Destination, Protocol, Info string }
	first, _, _ := strings.Cut(printed, "\n")
	if err := json.Unmarshal([]byte(first), &seen); err != nil || seen.Direction != "in" || seen.Protocol != "icmp" || seen.Destination != address || strings.Count(printed, "\n") != 3 {
		t.Errorf("%v\n%s", err, printed)
	}
	if last != "3 packets, 0 dropped\n" {
		t.Error(last)
	}
	if _, last := o.capture("web", "--for", "10ms", "--protocol", "sctp").end(0); last != "0 packets, 0 dropped\n" {
		t.Error(last)
	}
	onLink := o.capture("demo0", "--protocol", "sctp")
	gone := o.capture("web", "--protocol", "sctp")
	o.must("del", "demo", "--id", "web")
	if _, last := gone.end(0); !strings.Contains(last, "eth0 of demo/web/eth0 went down or is gone") {
		t.Error(last)
	}
	onLink.end(syscall.SIGINT)
}

// TestCaptureIsHarmless prints what containers send without what moves a terminal's cursor.
func TestCaptureIsHarmless(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	pod, _ := o.attach("web")
	c := o.capture("web", "--port", "53", "-c", "1")
	query := "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x09evil\x1b[2Jx\x07example\x00\x00\x01\x00\x01"
	pod.Do(func() {
		conn, err := pod.DialContext(t.Context(), "udp", "10.88.0.1:53")
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte(query))
	})
	printed, _ := c.end(0)
	if strings.Contains(printed, "\x1b") || !strings.Contains(printed, "dns A evil?[2Jx.example") {
		t.Errorf("%q", printed)
	}
}
