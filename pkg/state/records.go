package state

import (
	"os"
	"strings"

	"github.com/cnibox/cnibox/pkg/conf"
)

// ReadRecords returns what WriteRecords wrote, nothing if there is no such file, and its lines that are no records: those of earlier
// versions. It may have 256 MiB, and is else as for Read.
func ReadRecords(path string) (records []*conf.Object, others []string, err error) {
	text, err := read(path, maxRecords)
	if IsMissing(err) {
		return nil, nil, nil
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		record, noRecord := conf.Parse([]byte(line))
		switch {
		case noRecord == nil:
			records = append(records, record.Lenient())
		case line != "":
			others = append(others, line)
		}
	}
	return records, others, err
}

// WriteRecords replaces a file by one with these records, a JSON object a line, and removes it if there are none.
func WriteRecords(path string, records []*conf.Object, mode os.FileMode) error {
	if len(records) == 0 {
		return Remove(path)
	}
	var text []byte
	for _, r := range records {
		text = append(append(text, r.JSON()...), '\n')
	}
	return Write(path, text, mode)
}
