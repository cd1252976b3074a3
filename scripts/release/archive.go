package main

import (
	"archive/tar"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/gzip"
)

// writeArchive makes an archive that depends on nothing but the entries and their time: all is root's, and gzip's header has neither
// name nor time. All is in the directory root: ".", as in the reference plugins' archives, or one that is made.
func writeArchive(path, root string, entries []entry, modified time.Time) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	packed, _ := gzip.NewWriterLevel(file, 7) // as small as gzip -9, in a quarter of the time; it fails for a wrong level only
	packed.ModTime = time.Unix(0, 0)          // none: the library writes Go's zero time as a day of 2042
	archive := tar.NewWriter(packed)
	err = writeEntries(archive, root, entries, modified)
	return errors.Join(err, archive.Close(), packed.Close(), file.Close())
}

func writeEntries(archive *tar.Writer, root string, entries []entry, modified time.Time) error {
	made := map[string]bool{}
	for _, e := range entries {
		if err := writeDirectories(archive, root, path.Dir(e.name), made, modified); err != nil {
			return err
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: root + "/" + e.name, Linkname: e.link, Size: int64(len(e.content)), Mode: e.mode,
			Uname: "root", Gname: "root", ModTime: modified, Format: tar.FormatUSTAR,
		}
		if e.link != "" {
			header.Typeflag = tar.TypeSymlink
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(e.content); err != nil {
			return err
		}
	}
	return nil
}

// writeDirectories writes a directory and those that it is in, each once.
func writeDirectories(archive *tar.Writer, root, dir string, made map[string]bool, modified time.Time) error {
	if made[dir] {
		return nil
	}
	made[dir] = true
	name := root + "/"
	if dir != "." {
		if err := writeDirectories(archive, root, path.Dir(dir), made, modified); err != nil {
			return err
		}
		name += dir + "/"
	}
	return archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir, Name: name, Mode: 0o755, Uname: "root", Gname: "root", ModTime: modified, Format: tar.FormatUSTAR,
	})
}

// writeChecksums writes what sha256sum and sha512sum print, into the files that their --check reads.
func writeChecksums(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	short, long := sha256.New(), sha512.New()
	if _, err := io.Copy(io.MultiWriter(short, long), file); err != nil {
		return err
	}
	name := filepath.Base(path)
	return errors.Join(
		os.WriteFile(path+".sha256", fmt.Appendf(nil, "%x  %s\n", short.Sum(nil), name), 0o644),
		os.WriteFile(path+".sha512", fmt.Appendf(nil, "%x  %s\n", long.Sum(nil), name), 0o644),
	)
}
