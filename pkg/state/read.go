package state

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxFile and maxRecords are in bytes. A file of records has one for each rule of the node.
const maxFile, maxRecords = 1 << 20, 256 << 20

// Read returns the content of a regular file of 1 MiB at most. Anything else at path, such as a device or a pipe, is an error, and is
// neither waited for nor read: paths come from configurations.
func Read(path string) ([]byte, error) { return read(path, maxFile) }

func read(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &os.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	content, err := io.ReadAll(io.LimitReader(f, most+1))
	if int64(len(content)) > most {
		return nil, &os.PathError{Op: "read", Path: path, Err: fmt.Errorf("larger than %d MiB", most>>20)}
	}
	return content, err
}
