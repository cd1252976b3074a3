package stub

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/process/layout"
)

// arches are the architectures: qemu's name, and what the ELF header of a Go program has.
var arches = map[string]struct {
	emulator string
	class    elf.Class
	data     elf.Data
	machine  elf.Machine
	flags    uint32
}{
	"amd64":    {"x86_64", elf.ELFCLASS64, elf.ELFDATA2LSB, elf.EM_X86_64, 0},
	"arm64":    {"aarch64", elf.ELFCLASS64, elf.ELFDATA2LSB, elf.EM_AARCH64, 0},
	"arm":      {"arm", elf.ELFCLASS32, elf.ELFDATA2LSB, elf.EM_ARM, 0x5000002},
	"ppc64le":  {"ppc64le", elf.ELFCLASS64, elf.ELFDATA2LSB, elf.EM_PPC64, 2},
	"riscv64":  {"riscv64", elf.ELFCLASS64, elf.ELFDATA2LSB, elf.EM_RISCV, 4},
	"s390x":    {"s390x", elf.ELFCLASS64, elf.ELFDATA2MSB, elf.EM_S390, 0},
	"mips64le": {"mips64el", elf.ELFCLASS64, elf.ELFDATA2LSB, elf.EM_MIPS, 0x20000004},
}

// assembled returns the head of a Go program of an architecture, and the code of stubs behind it. A whole program of each would take minutes to compile.
func assembled(t *testing.T, arch string) []byte {
	t.Helper()
	a := arches[arch]
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(a.class), byte(a.data), byte(elf.EV_CURRENT)}
	var head []byte
	if a.class == elf.ELFCLASS32 {
		head, _ = binary.Append(nil, binary.LittleEndian, elf.Header32{Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(a.machine),
			Version: 1, Flags: a.flags, Ehsize: 52, Phentsize: 32, Shentsize: 40, Shnum: 3, Shoff: 4})
	} else {
		order := map[elf.Data]binary.AppendByteOrder{elf.ELFDATA2LSB: binary.LittleEndian, elf.ELFDATA2MSB: binary.BigEndian}[a.data]
		head, _ = binary.Append(nil, order.(binary.ByteOrder), elf.Header64{Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(a.machine),
			Version: 1, Flags: a.flags, Ehsize: 64, Phentsize: 56, Shentsize: 64, Shnum: 3, Shoff: 4})
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	object := filepath.Join(t.TempDir(), "text.o")
	assemble := exec.Command("go", "tool", "asm", "-p", "stub", "-I", filepath.Join(strings.TrimSpace(string(root)), "pkg/include"), "-o", object, "text_"+arch+".s")
	assemble.Env = append(os.Environ(), "GOARCH="+arch)
	if out, err := assemble.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	code, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	return append(head, code...)
}

// TestStub has a stub of each architecture run programs of this machine, which say how they were called.
func TestStub(t *testing.T) {
	program, err := exec.Command("go", "run", "-exec", "cat", "./testdata/say").Output()
	if err != nil {
		t.Fatal(err)
	}
	for arch := range arches {
		t.Run(arch, func(t *testing.T) { testStub(t, arch, program) })
	}
}

func testStub(t *testing.T, arch string, program []byte) {
	qemu, err := exec.LookPath("qemu-" + arches[arch].emulator + "-static")
	if err != nil {
		t.Fatalf("%v: `make setup` installs it", err)
	}
	made, err := Make(assembled(t, arch), "cnibox", "host-local")
	if err != nil {
		t.Fatal(err)
	}
	marked := bytes.Clone(program)
	layout.Mark(marked, layout.Whole)

	type file = []byte
	foreign := file("#!/bin/sh\necho foreign\n")
	tests := []struct {
		name  string
		files map[string]file
		want  string
	}{
		{"cnibox runs, with the arguments and the environment", map[string]file{"cnibox": program}, "cnibox: ./bridge one two VALUE=3\n"},
		{"the rest of an upgrade by hand", map[string]file{"cnibox": marked}, "cnibox: ./bridge one two VALUE=3\n"},
		{"cnibox first", map[string]file{"cnibox": program, "host-local": marked}, "cnibox: ./bridge one two VALUE=3\n"},
		{"without cnibox host-local runs", map[string]file{"host-local": marked}, "host-local: ./bridge one two VALUE=3\n"},
		{"a stub that was written over cnibox does not run itself", map[string]file{"cnibox": made, "host-local": marked}, "host-local: ./bridge one two VALUE=3\n"},
		{"a foreign host-local does not run", map[string]file{"host-local": foreign}, "code"},
		{"another program as host-local does not run", map[string]file{"host-local": program}, "code"},
		{"a text with the mark does not run", map[string]file{"host-local": file("#!/bin/sh\n##\xF6\necho foreign\n")}, "code"},
		{"the mark of the file before does not count", map[string]file{"cnibox": append(file("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\xF6"), 0), "host-local": file("#!/bin/ls\n")}, "code"},
		{"an empty host-local does not run", map[string]file{"host-local": nil}, "code"},
		{"stubs alone", map[string]file{"host-local": made, "cnibox": made}, "code"},
		{"nothing beside it", nil, "code"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name string, content file) {
				if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			write("bridge", made)
			for name, content := range tt.files {
				write(name, content)
			}
			command := exec.Command(qemu, "./bridge", "one", "two")
			command.Dir, command.Env = dir, []string{"VALUE=3"}
			text, err := command.Output()
			out := string(text)
			if tt.want != "code" {
				if err != nil || out != tt.want {
					t.Errorf("got %q, %v; want %q", out, err, tt.want)
				}
				return
			}
			if err == nil || !strings.HasPrefix(out, `{"cniVersion":"1.0.0","code":5,"msg":"cnibox, which this file runs, is not beside it`) || !strings.HasSuffix(out, "}"+strings.Repeat(" ", messageLen-1-len(strings.TrimSpace(out)))+"\n") {
				t.Errorf("got %q, %v; want an error of CNI", out, err)
			}
		})
	}
}
