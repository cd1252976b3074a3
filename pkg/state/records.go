package state

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/conf"
)

// ReadRecords returns what WriteRecords wrote, nothing if there is no such file. A line that is no record, as a crash may have left one, is
// passed over. The file may have 256 MiB, and is else as for Read.
func ReadRecords(path string) (records []*conf.Object, err error) {
	text, err := read(path, maxRecords)
	if IsMissing(err) {
		return nil, nil
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if record, noRecord := conf.Parse([]byte(line)); noRecord == nil {
			records = append(records, record.Lenient())
		}
	}
	return records, err
}

// WriteRecords replaces a file by one with these records, a JSON object a line, and removes it if there are none. Where the disk is full,
// fewer records than before are written over the file. A path that is "" is of a file that can't be kept (RunFile).
func WriteRecords(path string, records []*conf.Object, mode os.FileMode) error {
	if path == "" {
		return nil
	}
	if len(records) == 0 {
		return Remove(path)
	}
	var text []byte
	for _, r := range records {
		text = append(append(text, r.JSON()...), '\n')
	}
	err := Write(path, text, mode)
	if errors.Is(err, unix.ENOSPC) && overwrite(path, text) == nil {
		return nil
	}
	return err
}

// overwrite shortens a file to a text, which takes no space. Whoever reads it meanwhile, or after a crash, may see a record twice, or one
// that is gone.
func overwrite(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() < int64(len(text)) {
		return errors.Join(err, unix.ENOSPC)
	}
	_, err = f.WriteAt(text, 0)
	return errors.Join(err, f.Truncate(int64(len(text))))
}
