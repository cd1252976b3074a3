package trust

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const nobody = 65534

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// tree returns a trusted tree: /etc/a.conf, and /home, which is a stranger's and has b.conf of root's.
func tree(t *testing.T) (Tree, string) {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"/etc/d", "/home"} {
		must(t, os.MkdirAll(root+dir, 0o755))
	}
	for _, file := range []string{"/etc/a.conf", "/etc/d/1", "/home/b.conf"} {
		must(t, os.WriteFile(root+file, []byte("text"), 0o600))
	}
	must(t, os.Chown(root+"/home", nobody, nobody))
	return Tree(root), root
}

// TestRead: what others than root can change is not read, however a path leads there.
func TestRead(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(root string) error
		path  string
		want  string // a part of the error, "" if it is read
	}{
		{"root's file", nil, "/etc/a.conf", ""},
		{"over ..", nil, "/etc/../etc/./d//../a.conf", ""},
		{".. of the first directory", nil, "/../../etc/a.conf", ""},
		{"by links of root's", func(r string) error {
			return errors.Join(os.Symlink("/etc", r+"/abs"), os.Symlink("../abs/a.conf", r+"/etc/rel"))
		}, "/abs/rel", ""},
		{"a link out of the tree", func(r string) error { return os.Symlink(r+"/etc/a.conf", r+"/etc/out") }, "/etc/out", "no such file"},
		{"nobody's file", func(r string) error { return os.Chown(r+"/etc/a.conf", nobody, 0) }, "/etc/a.conf", "it belongs to user 65534"},
		{"a file that its group may write", func(r string) error { return os.Chmod(r+"/etc/a.conf", 0o660) }, "/etc/a.conf", "its group or others can write it (0660): chmod go-w /etc/a.conf"},
		{"a file that all may write", func(r string) error { return os.Chmod(r+"/etc/a.conf", 0o602) }, "/etc/a.conf", "its group or others can write it"},
		{"a directory that all may write, above", func(r string) error { return os.Chmod(r+"/etc", 0o777) }, "/etc/d/1", "can write it"},
		{"a sticky directory above", func(r string) error { return os.Chmod(r+"/etc", 0o777|fs.ModeSticky) }, "/etc/d/1", "everybody may put files there"},
		{"root's file in a stranger's directory", nil, "/home/b.conf", "it belongs to user 65534"},
		{"a stranger's directory on the way", nil, "/home/../etc/a.conf", "it belongs to user 65534"},
		{"a link of a stranger's", func(r string) error {
			return errors.Join(os.Symlink("a.conf", r+"/etc/l"), os.Lchown(r+"/etc/l", nobody, 0))
		}, "/etc/l", "it belongs to user 65534"},
		{"a link of root's to a stranger's", func(r string) error { return os.Symlink("/home/b.conf", r+"/etc/l") }, "/etc/l", "it belongs to user 65534"},
		{"links in a circle", func(r string) error { return os.Symlink("/etc/l", r+"/etc/l") }, "/etc/l", "too many levels"},
		{"a pipe", func(r string) error { return unix.Mkfifo(r+"/etc/p", 0o600) }, "/etc/p", "not a regular file"},
		{"a directory", nil, "/etc/d", "not a regular file"},
		{"below a file", nil, "/etc/a.conf/b", "not a directory"},
		{"4 GiB", func(r string) error { return os.Truncate(r+"/etc/a.conf", 4<<30) }, "/etc/a.conf", "larger than 1 MiB"},
		{"a relative path", nil, "etc/a.conf", "not an absolute path"},
		{"nothing", nil, "/etc/none", "no such file"},
	} {
		tr, root := tree(t)
		if c.spoil != nil {
			must(t, c.spoil(root))
		}
		text, err := tr.Read(c.path)
		switch {
		case c.want == "" && (err != nil || string(text) != "text"):
			t.Errorf("%s: %q, %v", c.name, text, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || text != nil):
			t.Errorf("%s: %q, %v; want %q", c.name, text, err, c.want)
		}
		isStrangers := strings.Contains(c.want, "belongs") || strings.Contains(c.want, "write it") || strings.Contains(c.want, "everybody")
		if err := tr.Check(c.path); isStrangers != errors.Is(err, ErrUntrusted) {
			t.Errorf("%s: checked: %v", c.name, err)
		}
	}
}

func TestNames(t *testing.T) {
	tr, root := tree(t)
	if names, err := tr.Names("/etc"); err != nil || !slices.Equal(names, []string{"a.conf", "d"}) {
		t.Errorf("%q, %v", names, err)
	}
	for _, path := range []string{"/home", "/etc/a.conf", "/none"} {
		if names, err := tr.Names(path); names != nil || err == nil {
			t.Errorf("%s: %q, %v", path, names, err)
		}
	}
	if err := Host.Check(root); !errors.Is(err, ErrUntrusted) {
		t.Errorf("what is below /tmp is trusted: %v", err)
	}
	if err := Host.Check("/proc/self/status"); err != nil {
		t.Error(err)
	}
}

// TestWrite: nothing is written over a stranger's link, or into a stranger's file.
func TestWrite(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(root string) error
		path  string
		want  string // a part of the error, "" if it is written
	}{
		{"a new file", nil, "/etc/new", ""},
		{"a new file in a stranger's directory", nil, "/home/new", ""},
		{"root's file", nil, "/home/b.conf", ""},
		{"by a link of root's", func(r string) error { return os.Symlink("a.conf", r+"/etc/l") }, "/etc/l", ""},
		{"a stranger's link to root's file", func(r string) error {
			return errors.Join(os.Symlink("../etc/a.conf", r+"/home/l"), os.Lchown(r+"/home/l", nobody, 0))
		}, "/home/l", "it belongs to user 65534"},
		{"a stranger's link to nothing", func(r string) error {
			return errors.Join(os.Symlink("../etc/none", r+"/home/l"), os.Lchown(r+"/home/l", nobody, 0))
		}, "/home/l", "it belongs to user 65534"},
		{"a stranger's link to root's directory", func(r string) error {
			return errors.Join(os.Symlink("../etc", r+"/home/l"), os.Lchown(r+"/home/l", nobody, 0))
		}, "/home/l/new", "it belongs to user 65534"},
		{"a stranger's file", func(r string) error { return os.Chown(r+"/home/b.conf", nobody, 0) }, "/home/b.conf", "it belongs to user 65534; name another file"},
		{"a pipe", func(r string) error { return unix.Mkfifo(r+"/etc/p", 0o600) }, "/etc/p", "not a regular file"},
		{"a directory", nil, "/etc/d", "not a regular file"},
		{"in no directory", nil, "/none/new", "no such file"},
	} {
		for how, write := range map[string]func(path string) error{
			"Write": func(path string) error { return Write(path, []byte("new"), 0o644) },
			"Create": func(path string) error {
				f, err := Create(path, 0o600)
				if err == nil {
					_, err = f.WriteString("new")
					err = errors.Join(err, f.Close())
				}
				return err
			},
		} {
			_, root := tree(t)
			if c.spoil != nil {
				must(t, c.spoil(root))
			}
			before := content(t, root)
			err := write(root + c.path)
			switch {
			case c.want == "" && (err != nil || !strings.Contains(content(t, root), " new\n")):
				t.Errorf("%s, %s: %v\n%s", how, c.name, err, content(t, root))
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s, %s: %v; want %q", how, c.name, err, c.want)
			case c.want != "" && before != content(t, root):
				t.Errorf("%s, %s: refused, and changed:\n%s\nwas\n%s", how, c.name, content(t, root), before)
			}
		}
	}
}

// content returns all that is below a directory, with what regular files have.
func content(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		text := []byte{}
		if err == nil && e.Type().IsRegular() {
			text, err = os.ReadFile(path)
		}
		info, wrong := os.Lstat(path)
		b.WriteString(path + " " + info.Mode().String() + " " + string(text) + "\n")
		return errors.Join(err, wrong)
	}))
	return b.String()
}

// TestWriteTakesNoOthersContent: a second name of a file, which a stranger made, is a file of its own afterwards.
func TestWriteTakesNoOthersContent(t *testing.T) {
	for how, write := range map[string]func(path string) error{
		"Write":   func(path string) error { return Write(path, []byte("new"), 0o644) },
		"Rewrite": func(path string) error { return Rewrite(path, []byte("new")) },
		"Create": func(path string) error {
			f, err := Create(path, 0o600)
			if err == nil {
				err = f.Close()
			}
			return err
		},
	} {
		_, root := tree(t)
		must(t, os.Link(root+"/etc/a.conf", root+"/home/second"), write(root+"/home/second"))
		if text, _ := os.ReadFile(root + "/etc/a.conf"); string(text) != "text" {
			t.Errorf("%s: the file has %q", how, text)
		}
	}
}

// TestRewrite keeps owner, group and mode, and a link.
func TestRewrite(t *testing.T) {
	_, root := tree(t)
	file := root + "/home/c.conf"
	must(t, os.WriteFile(file, nil, 0o600), os.Chown(file, nobody, 1), os.Chmod(file, 0o640), os.Symlink("../home/c.conf", root+"/etc/l"))
	must(t, Rewrite(root+"/etc/l", []byte("new")))
	var st unix.Stat_t
	must(t, unix.Stat(file, &st))
	if text, _ := os.ReadFile(file); string(text) != "new" || st.Uid != nobody || st.Gid != 1 || st.Mode&0o7777 != 0o640 {
		t.Errorf("it has %q, owner %d:%d, mode %o", text, st.Uid, st.Gid, st.Mode)
	}
	if target, _ := os.Readlink(root + "/etc/l"); target != "../home/c.conf" {
		t.Errorf("the link leads to %q", target)
	}
	must(t, os.Symlink("../etc/a.conf", root+"/home/l"), os.Lchown(root+"/home/l", nobody, 0))
	if err := Rewrite(root+"/home/l", nil); !errors.Is(err, ErrUntrusted) {
		t.Errorf("a stranger's link: %v", err)
	}
	if err := Rewrite(root+"/etc/none", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
}

// TestNew makes files that are not there, and discards them where they were made, wherever their directory is by then.
func TestNew(t *testing.T) {
	_, root := tree(t)
	if _, err := New(root+"/etc/a.conf", 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that is there: %v", err)
	}
	f, err := New(root+"/home/a.conf", 0o600)
	must(t, err, os.Rename(root+"/home", root+"/moved"), os.Symlink("etc", root+"/home"), f.Discard())
	for path, want := range map[string]bool{"/etc/a.conf": true, "/moved/a.conf": false} {
		if _, err := os.Stat(root + path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}
