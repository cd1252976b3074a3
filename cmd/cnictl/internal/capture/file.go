package capture

import (
	"io"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// File writes packets as Wireshark and tcpdump read them (pcapng).
type File struct{ w *pcapgo.NgWriter }

// NewFile begins a file about a link, and says in it whose that is.
func NewFile(w io.Writer, link, whose string, ethernet bool) (*File, error) {
	kind := layers.LinkTypeEthernet
	if !ethernet {
		kind = layers.LinkTypeRaw
	}
	const nanoseconds = 9
	i := pcapgo.NgInterface{Name: link, Description: whose, LinkType: kind, OS: "linux", TimestampResolution: nanoseconds}
	ng, err := pcapgo.NewNgWriterInterface(w, i, pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "cnictl"}})
	if err != nil {
		return nil, err
	}
	return &File{ng}, ng.Flush()
}

// Write writes a packet, whole and at once: somebody may be reading.
func (f *File) Write(frame Frame) error {
	i := gopacket.CaptureInfo{Timestamp: frame.Time, CaptureLength: len(frame.Data), Length: frame.Length}
	if err := f.w.WritePacket(i, frame.Data); err != nil {
		return err
	}
	return f.w.Flush()
}
