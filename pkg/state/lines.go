package state

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// ReadLines returns the lines of a file of ours but empty ones, none if it is not there. It may have 256 MiB, and is else as for Read.
func ReadLines(path string) ([]string, error) {
	text, err := read(path, maxRecords)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.FieldsFunc(string(text), func(c rune) bool { return c == '\n' }), err
}

// WriteLines replaces a file by one with these lines, and removes it if there are none.
func WriteLines(path string, lines []string, mode os.FileMode) error {
	if len(lines) > 0 {
		return Write(path, []byte(strings.Join(lines, "\n")+"\n"), mode)
	}
	return Remove(path)
}
