package repair

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cnibox/cnibox/pkg/operator/node"
	"github.com/cnibox/cnibox/pkg/state"
)

// leftDir has a file for each container that is left alone, by its id, with a line for each of its attachments. Later attachments are repaired.
func leftDir() string { return state.RunFile("left-alone") }

// leftFile returns the file of a container, "" if there is no place for it.
func leftFile(containerID string) string {
	dir := leftDir()
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, filepath.Base(containerID))
}

// lineOf says which ADD an attachment is of: each writes libcni's result anew.
func lineOf(a *node.Attachment) string {
	return fmt.Sprintf("%s %s %d\n", a.Network, a.IfName, a.Made().UnixNano())
}

// IsLeft reports whether somebody said that an attachment's container is left alone.
func IsLeft(a *node.Attachment) bool {
	text, err := os.ReadFile(leftFile(a.ContainerID))
	return err == nil && strings.Contains("\n"+string(text), "\n"+lineOf(a))
}

// Leave has repair and the agent leave the attachments of a container alone, or takes that back.
func Leave(attachments []*node.Attachment, isLeft bool) error {
	id := attachments[0].ContainerID
	file := leftFile(id)
	if !isLeft {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("take container %s back: %w", id, err)
		}
		return nil
	}
	var text strings.Builder
	for _, a := range attachments {
		text.WriteString(lineOf(a))
	}
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = state.Write(file, []byte(text.String()), 0o600)
	}
	if err != nil {
		return fmt.Errorf("note that container %s is left alone: %w", id, err)
	}
	return nil
}

// ForgetLeft removes the notes about containers that have no attachment on a node any more, if all of it could be read.
func ForgetLeft(n *node.Node) {
	files, _ := os.ReadDir(leftDir())
	if len(files) == 0 || len(n.Unread) > 0 {
		return
	}
	there := map[string]bool{}
	for _, a := range n.Attachments {
		there[a.ContainerID] = true
	}
	for _, f := range files {
		if !there[f.Name()] {
			_ = os.Remove(leftFile(f.Name()))
		}
	}
}
