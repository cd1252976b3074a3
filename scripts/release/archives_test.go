package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/plugins"
)

var modified = time.Unix(1700000000, 0).UTC()

// pack makes archives of stand-ins for the binaries, whose modes are as a careless umask leaves them.
func pack(t *testing.T) string {
	t.Helper()
	r := Release{Version: "v1.2.3", Time: modified, Source: "../..", Tree: t.TempDir(), Out: t.TempDir(), Arches: []string{"amd64"}, named: map[string]bool{}}
	for path, mode := range map[string]os.FileMode{
		"linux-amd64/cnibox": 0o700, "linux-amd64/cnibox-etcd": 0o700, "linux-amd64/cnictl": 0o775, "linux-amd64/cni-conformance": 0o700, "share/man/man1/cnictl.1": 0o600, "share/completion/_cnictl": 0o664,
		"share/doc/LICENSE": 0o644, "share/doc/README.md": 0o644, "share/doc/" + noticesFile: 0o644,
	} {
		path = filepath.Join(r.Tree, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(standIn(filepath.Base(path))), mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archives(r); err != nil {
		t.Fatal(err)
	}
	return r.Out
}

// standIn returns what a program of that name has at least: a head, and cnictl the code of stubs.
func standIn(name string) string {
	text := fmt.Sprintf("\x7fELF\x02\x01%-2000s", name)
	for _, b := range []byte("\xC9\xB0\xC5\xA1 \xA1\xC5\xB0\xC9") {
		text += strings.Repeat(string([]byte{b}), 4)
	}
	return text
}

// headers reads the headers of an archive.
func headers(t *testing.T, path string) (list []*tar.Header) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	if packed.Name != "" || !packed.ModTime.IsZero() {
		t.Errorf("%s: gzip's header has the name %q and the time %s", path, packed.Name, packed.ModTime)
	}
	for archive := tar.NewReader(packed); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, h)
	}
}

func TestArchives(t *testing.T) {
	out := pack(t)
	for archive, wanted := range map[string][]string{
		"cni-plugins-linux-amd64-v1.2.3.tgz":        {"./", "./LICENSE", "./README.md", "./" + noticesFile, "./cnibox", "./bridge", "./flannel"},
		"cni-plugins-linux-amd64-v1.2.3-copies.tgz": {"./", "./LICENSE", "./README.md", "./" + noticesFile, "./cnibox", "./bridge", "./flannel"},
		"cnibox-linux-amd64-v1.2.3.tgz": {"./", "./cnibox", "./cnibox-etcd", "./cnictl", "./man/man1/cnictl.1", "./completion/_cnictl", "./doc/LICENSE",
			"./doc/" + noticesFile, "./systemd/cnibox-dhcp.socket"},
		"cni-conformance-linux-amd64-v1.2.3.tgz": {"./", "./LICENSE", "./" + noticesFile, "./cni-conformance"},
	} {
		copies := strings.Contains(archive, "copies")
		var names []string
		for _, h := range headers(t, filepath.Join(out, archive)) {
			names = append(names, h.Name)
			if h.Uid != 0 || h.Gid != 0 || h.Uname != "root" || h.Gname != "root" || !h.ModTime.Equal(modified) {
				t.Errorf("%s: %s is of %d %s %d %s, %s", archive, h.Name, h.Uid, h.Uname, h.Gid, h.Gname, h.ModTime)
			}
			name := strings.TrimPrefix(h.Name, "./")
			isPlugin := slices.Contains(plugins.All.Names(), name)
			if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir || isPlugin && (h.Size < 1000) != (!copies && name != "host-local") {
				t.Errorf("%s: %s is of type %q and %d bytes", archive, h.Name, h.Typeflag, h.Size)
			}
			executable := h.Typeflag == tar.TypeDir || isPlugin || slices.Contains(programs, name) || name == "cni-conformance"
			if want := map[bool]int64{true: 0o755, false: 0o644}[executable]; h.Mode != want {
				t.Errorf("%s: %s has mode %o, want %o", archive, h.Name, h.Mode, want)
			}
		}
		for _, name := range wanted {
			if !slices.Contains(names, name) {
				t.Errorf("%s lacks %s", archive, name)
			}
		}
		if unique := slices.Compact(slices.Sorted(slices.Values(names))); len(unique) != len(names) {
			t.Errorf("%s has a name twice: %v", archive, names)
		}
	}
}

func TestArchivesAreReproducible(t *testing.T) {
	if printed, err := run(".", "diff -r "+pack(t)+" "+pack(t)); err != nil {
		t.Errorf("%v\n%s", err, printed)
	}
}
