package capture

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/cnibox/cnibox/cmd/cnictl/internal/capture"
	"github.com/cnibox/cnibox/cmd/cnictl/internal/ui"
	"github.com/cnibox/cnibox/pkg/operator/trust"
)

// sink takes packets.
type sink interface {
	Write(capture.Frame) error
	Close() error
}

func (f *captureFlags) sink(cmd *cobra.Command, at *spot) (sink, error) {
	switch {
	case f.file == "":
		return &lines{cmd.OutOrStdout(), ui.WantsJSON(cmd)}, nil
	case ui.WantsJSON(cmd):
		return nil, ui.Usagef("--json does not go with --write")
	}
	var to io.WriteCloser = os.Stdout
	if f.file != "-" {
		var err error
		if to, err = trust.Create(f.file, 0o600); err != nil {
			return nil, err
		}
	}
	encap := at.link.Attrs().EncapType
	file, err := capture.NewFile(to, ui.Harmless(at.link.Attrs().Name), at.whose, encap == "ether" || at.link.Attrs().Flags&net.FlagLoopback != 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", f.file, err), to.Close())
	}
	return &packets{file, to}, nil
}

// packets writes a file.
type packets struct {
	*capture.File
	file io.Closer
}

func (p *packets) Close() error { return p.file.Close() }

// lines prints a line for each packet.
type lines struct {
	to   io.Writer
	json bool
}

func (l *lines) Write(f capture.Frame) error {
	s := f.Summary()
	text := []byte(ui.Harmless(s.String()))
	if l.json {
		var err error
		if text, err = json.Marshal(s); err != nil {
			return err
		}
	}
	_, err := l.to.Write(append(text, '\n'))
	return err
}

func (l *lines) Close() error { return nil }
