package bench

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// usage is what a program used, by the launcher's report.
type usage struct {
	wall time.Duration
	peak float64 // resident set of the largest process, bytes
}

// launch runs cmd with the launcher.
func (p programs) launch(cmd *exec.Cmd) (usage, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return usage{}, err
	}
	defer reader.Close()
	under(cmd, p.launcher)
	cmd.ExtraFiles = []*os.File{writer} // descriptor 3
	err = cmd.Run()
	writer.Close()
	if err != nil {
		return usage{}, err
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		return usage{}, err
	}
	return parseUsage(string(text))
}

func parseUsage(text string) (usage, error) {
	var nanoseconds, kib int64
	if _, err := fmt.Sscan(text, &nanoseconds, &kib); err != nil {
		return usage{}, fmt.Errorf("read the launcher's report %q: %w", text, err)
	}
	return usage{wall: time.Duration(nanoseconds), peak: float64(kib) * 1024}, nil
}
