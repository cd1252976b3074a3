// Package stub makes the files that answer to plugins' names in a directory: each is a program of some hundred bytes that runs the cnibox beside it.
// Whoever writes through such a name, or copies the directory, changes or copies that file alone.
package stub

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/cnibox/cnibox/pkg/process/layout"
)

// Offsets in a stub, and its address in memory. text.h has the same numbers.
const (
	base       = 0x400000
	exe        = 0xC0
	names      = 0xD0
	message    = 0x100
	messageLen = 256
	code       = 0x200

	page = 0x10000 // the largest of any architecture
)

// MostBytes is more than a stub has.
const MostBytes = 4096

// Programs returns the names of the files that a stub of a binary runs, the first that is there. The second is a plugin that is a whole copy of cnibox.
func Programs(binary string) []string {
	if binary == layout.Programs[0] {
		return layout.Programs
	}
	return []string{binary}
}

// RunBy returns the names of the files that a stub runs, of its content.
func RunBy(content []byte) []string {
	list, _, _ := bytes.Cut(content[min(names, len(content)):], []byte{0, 0})
	return strings.Split(string(list), "\x00")
}

// Make returns a stub that runs the first of the files beside it that is a whole program. That is what the first name has, unless it is a stub, too;
// the file of another name has to be marked by layout.Mark. The stub is for the architecture of a cnictl, of whose content it is made: its code is
// linked into each.
func Make(cnictl []byte, wholes ...string) ([]byte, error) {
	if reflect.ValueOf(text).IsNil() { // it never is: the linker leaves out what nobody asks for
		return nil, errors.New("no code of stubs is linked")
	}
	_, rest, begins := bytes.Cut(cnictl, fence("\xC9\xB0\xC5\xA1"))
	program, _, ends := bytes.Cut(rest, fence("\xA1\xC5\xB0\xC9"))
	if !begins || !ends {
		return nil, errors.New("it has no code of stubs; is it a cnictl?")
	}
	list := strings.Join(wholes, "\x00") + "\x00\x00"
	said := fmt.Sprintf(`{"cniVersion":"1.0.0","code":5,"msg":"%s, which this file runs, is not beside it, or can't be executed","details":"cnictl doctor says which; or install again: cnictl install --dir DIR"}`, wholes[0])
	if names+len(list) > message || len(said) >= messageLen {
		return nil, fmt.Errorf("the names %q are too long for a stub", wholes)
	}
	s := make([]byte, code, code+len(program))
	copy(s[exe:], "/proc/self/exe")
	copy(s[names:], list)
	copy(s[message:], fmt.Sprintf("%-*s\n", messageLen-1, said))
	s = append(s, program...)
	copy(s, header(cnictl, len(s)))
	layout.Mark(s, layout.Stub)
	return s, nil
}

// fence returns four words, each of which is one byte four times, so that it is the same in each byte order. This file has them in no other place.
func fence(letters string) []byte {
	var words []byte
	for _, b := range []byte(letters) {
		words = append(words, b, b, b, b)
	}
	return words
}

// header returns the ELF header of a program at base, of the kind that another program is (elf(5)).
func header(kind []byte, size int) []byte {
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(kind[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	var h, programs any
	// The stack is not executable: without its header the kernel may think otherwise.
	loaded, stack := uint32(elf.PF_R|elf.PF_X), uint32(elf.PF_R|elf.PF_W)
	if elf.Class(kind[elf.EI_CLASS]) == elf.ELFCLASS32 {
		h32 := &elf.Header32{}
		_, _ = binary.Decode(kind, order, h32)
		h32.Entry, h32.Phoff, h32.Phnum = base+code, uint32(h32.Ehsize), 2
		h32.Shoff, h32.Shentsize, h32.Shnum, h32.Shstrndx = 0, 0, 0, 0
		h, programs = h32, []elf.Prog32{
			{Type: uint32(elf.PT_LOAD), Vaddr: base, Paddr: base, Filesz: uint32(size), Memsz: uint32(size), Flags: loaded, Align: page},
			{Type: uint32(elf.PT_GNU_STACK), Flags: stack, Align: 16},
		}
	} else {
		h64 := &elf.Header64{}
		_, _ = binary.Decode(kind, order, h64)
		h64.Entry, h64.Phoff, h64.Phnum = base+code, uint64(h64.Ehsize), 2
		h64.Shoff, h64.Shentsize, h64.Shnum, h64.Shstrndx = 0, 0, 0, 0
		h, programs = h64, []elf.Prog64{
			{Type: uint32(elf.PT_LOAD), Vaddr: base, Paddr: base, Filesz: uint64(size), Memsz: uint64(size), Flags: loaded, Align: page},
			{Type: uint32(elf.PT_GNU_STACK), Flags: stack, Align: 16},
		}
	}
	text, _ := binary.Append(nil, order, h)
	text, _ = binary.Append(text, order, programs)
	return text
}
