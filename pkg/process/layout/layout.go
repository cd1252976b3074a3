// Package layout answers which files of a directory of plugins are this program, though they are files of their own: stubs, which run the cnibox
// beside them, and whole copies. Both say what they are in their ELF header, in a byte that means nothing (EI_PAD in elf(5)).
package layout

import (
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Kind is what a file is by its mark.
type Kind byte

// The kinds. Their bytes are in no text.
const (
	Other Kind = 0
	Stub  Kind = 0xF5 // runs the cnibox beside it
	Whole Kind = 0xF6 // a whole cnibox under a plugin's name
)

const markAt = 12

// Mark marks the content of a program.
func Mark(content []byte, kind Kind) { content[markAt] = byte(kind) }

// KindOf returns the kind of a content, of which the first bytes are enough.
func KindOf(content []byte) Kind {
	if len(content) > markAt && string(content[:4]) == "\x7fELF" {
		if kind := Kind(content[markAt]); kind == Stub || kind == Whole {
			return kind
		}
	}
	return Other
}

// WholePlugin is the plugin that is a whole copy wherever the others are stubs, which run it where cnibox is not.
const WholePlugin = "host-local"

// Programs are the names of the files that a stub runs, the first that is there.
var Programs = []string{"cnibox", WholePlugin}

// IsSelf reports whether a regular file is the binary of this process: by a link, also when another file has taken the binary's name since; as a stub
// beside it; or as a copy.
func IsSelf(path string, file *unix.Stat_t) bool {
	var own unix.Stat_t
	if unix.Stat("/proc/self/exe", &own) != nil {
		return false
	}
	if isSame(&own, file) {
		return true
	}
	kind, dir := kindAndDir(path)
	switch kind {
	case Stub:
		for _, name := range Programs {
			var beside unix.Stat_t
			if unix.Stat(filepath.Join(dir, name), &beside) == nil && isSame(&own, &beside) {
				return true
			}
		}
	case Whole:
		return own.Size == file.Size
	}
	return false
}

func isSame(a, b *unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// kindAndDir returns the kind of a file, and the directory in which a stub looks: that of the file itself, and not of a link to it.
func kindAndDir(path string) (Kind, string) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return Other, ""
	}
	defer unix.Close(fd)
	var head [markAt + 1]byte
	n, _ := unix.Read(fd, head[:])
	kind := KindOf(head[:max(n, 0)])
	if kind != Stub {
		return kind, ""
	}
	real := make([]byte, unix.PathMax)
	n, err = unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), real)
	if err != nil {
		return Other, ""
	}
	return kind, filepath.Dir(string(real[:n]))
}
