package lease

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// An answer of the index is found without a look at the files of others: here they are made a's own, in place, which the directory's time does
// not show. It is verified by the file that it names, which is made another's in the same way.
func TestIndexIsUsedAndVerified(t *testing.T) {
	b := newBench(t)
	wide := pool(0, "10.1.0.1-10.1.9.255")
	for i := range 100 {
		b.add(fmt.Sprint("id", i), wide)
	}
	b.del("id99", "eth0", "10.1.0.100")
	b.del("nobody", "eth0", "")
	b.addFails("id0", wide)
	for i := range 99 {
		if i != 42 {
			b.put(fmt.Sprintf("10.1.0.%d", i+1), "id42\r\neth0")
		}
	}
	if !b.isTrusted() {
		t.Fatal("not trusted after changes of our own, or after one in place")
	}
	b.del("id42", "eth0", "10.1.0.43")
	b.del("id42", "eth0", "")
	b.put("10.1.0.1", "new\r\neth0")
	b.del("id0", "eth0", "")
	if got := b.files()["10.1.0.1"]; got != "new\r\neth0" {
		t.Errorf("the file holds %q", got)
	}
	b.del("new", "eth0", "10.1.0.1")
}

func TestIndexIsNotTrustedAfterOthersChanges(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"a file made":     func(b *bench) { b.put("10.1.2.4", "other\r\neth0") },
		"a file removed":  func(b *bench) { _ = os.Remove(filepath.Join(b.Path(), "10.1.2.2")) },
		"a file replaced": func(b *bench) { b.put("new", "other\r\neth0"); _ = os.Rename(b.Path()+"/new", b.Path()+"/10.1.2.2") },
		"the directory made anew": func(b *bench) {
			_ = os.RemoveAll(b.Path())
			b.put("10.1.2.2", "other\r\neth0")
		},
		"the directory moved away": func(b *bench) {
			var st unix.Stat_t
			_ = unix.Stat(b.Path(), &st)
			_ = os.Rename(b.Path(), b.Path()+".old")
			b.put("10.1.2.2", "other\r\neth0")
			b.put("lock", "") // all that is in it, and then the very time of the old one
			_ = unix.UtimesNanoAt(unix.AT_FDCWD, b.Path(), []unix.Timespec{st.Atim, st.Mtim}, 0)
		},
		"the stamp cut":     func(b *bench) { _ = os.Truncate(filepath.Join(b.indexPath, "stamp"), 50) },
		"the index removed": func(b *bench) { _ = os.RemoveAll(b.indexPath) },
		"an index of before": func(b *bench) {
			_ = os.RemoveAll(b.indexPath)
			_ = os.WriteFile(b.indexPath, []byte("cnibox leases 1\n"), 0o600)
		},
		"another boot": func(b *bench) {
			stamp := filepath.Join(b.indexPath, "stamp")
			text, _ := os.ReadFile(stamp)
			boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
			_ = os.WriteFile(stamp, bytes.ReplaceAll(text, bytes.TrimSpace(boot), bytes.Repeat([]byte("0"), 36)), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.add("a", small)
			change(b)
			if b.isTrusted() {
				t.Error("trusted")
			}
			b.add("b", small)
			if !b.isTrusted() {
				t.Error("not trusted again after a call of ours")
			}
		})
	}
}

// An index that is damaged under a stamp that is in order costs a scan, never a wrong answer.
func TestDamagedIndex(t *testing.T) {
	for name, text := range map[string]string{
		"nonsense":        "\xff\xff\n\n",
		"another address": "10.1.2.3 \"a\\r\\neth0\"\n",
		"another owner":   "10.1.2.2 \"a\\r\\neth1\"\n",
		"a line cut":      "10.1.2.2 \"a\\r\\ne",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.add("a", small)
			if err := os.WriteFile(openIndex(b.indexPath, b.path).file("a"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			b.addFails("a", small)
			b.del("a", "eth0", "10.1.2.2")
		})
	}
}

// Whatever the files of an index hold: no panic, and only leases of who was asked about.
func FuzzIndex(f *testing.F) {
	f.Add("10.1.2.2 \"a\\r\\neth0\"\n", "boot 1 began 7 device 1 inode 2 time 3\n")
	f.Add("10.1.2.2 \"a\\r\\n", "boot 1 began 99999999999999999999 ")
	f.Add("x \"a\"\n", "boot 1 began ")
	f.Fuzz(func(t *testing.T, file, stamp string) {
		x := &index{path: t.TempDir(), boot: "boot 1 began "}
		if err := os.WriteFile(x.file("a"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		leases, err := x.find("net", "a")
		for _, l := range leases {
			if err != nil || l.Owner.ContainerID != "a" || !l.Address.IsValid() {
				t.Errorf("%q: %v, %v", file, leases, err)
			}
		}
		if began, ok := x.beganBy(stamp); ok && x.describe(began, began) == "" {
			t.Error("no stamp")
		}
	})
}

func TestWorksWithoutIndex(t *testing.T) {
	b := newBench(t)
	if err := os.WriteFile(filepath.Join(b.dataDir, ".cnibox"), nil, 0o600); err != nil { // no directory can be made
		t.Fatal(err)
	}
	b.add("a", small)
	b.addFails("a", small)
	b.del("a", "eth0", "10.1.2.2")
	b.del("a", "eth0", "")
}

// Random calls of ours and changes by others, against a plain map.
func TestStoreAgainstModel(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t)
		wide := pool(0, "10.1.0.1-10.1.0.60")
		model := map[string]string{} // id to address
		taken := func(a string) bool { return slices.Contains(slices.Collect(maps.Values(model)), a) }
		for range 400 {
			id := fmt.Sprint("id", rng.IntN(50))
			a := fmt.Sprintf("10.1.0.%d", 1+rng.IntN(60))
			switch rng.IntN(10) {
			case 0: // someone else adds
				if model[id] == "" && !taken(a) {
					b.put(a, id+"\r\neth0")
					model[id] = a
				}
			case 1: // someone else removes
				if model[id] != "" {
					_ = os.Remove(filepath.Join(b.Path(), model[id]))
					delete(model, id)
				}
			case 2:
				_ = os.RemoveAll(b.indexPath)
			case 3, 4, 5:
				b.del(id, "eth0", model[id])
				delete(model, id)
			case 6:
				leases, err := b.HeldBy(t.Context(), att(id, "eth0"))
				if err != nil || texts(leases) != model[id] {
					t.Fatalf("seed %d: %s holds %q (%v), want %q", seed, id, texts(leases), err, model[id])
				}
			default:
				if model[id] != "" {
					b.addFails(id, wide)
					continue
				}
				got := b.add(id, wide)
				if taken(got) {
					t.Fatalf("seed %d: %s got %s, which is taken", seed, id, got)
				}
				model[id] = got
			}
		}
		got := map[string]string{}
		for _, l := range b.leases() {
			got[l.Owner.ContainerID] = l.Address.String()
		}
		if !maps.Equal(got, model) || len(b.leases()) != len(model) {
			t.Errorf("seed %d: got %v\nwant %v", seed, got, model)
		}
	}
}
