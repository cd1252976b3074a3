package lease

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIndexIsTrustedAfterOurOwnChanges(t *testing.T) {
	b := newBench(t)
	wide := pool(0, "10.1.0.1-10.1.9.255")
	b.add("a", wide)
	if !b.isTrusted() {
		t.Fatal("not after the first ADD")
	}
	b.add("b", wide)
	b.del("a", "eth0", "10.1.0.1")
	b.del("nobody", "eth0", "")
	b.addFails("b", wide)
	if !b.isTrusted() {
		t.Error("not after more of our own calls")
	}
}

func TestIndexIsUsed(t *testing.T) {
	b := newBench(t)
	wide := pool(0, "10.1.0.1-10.1.9.255")
	for i := range 100 {
		b.add(fmt.Sprint("id", i), wide)
	}
	// An answer is found without a look at the files of others: here they are
	// made a's own, in place, which the directory's time does not show.
	for i := range 100 {
		if i != 42 {
			b.put(fmt.Sprintf("10.1.0.%d", i+1), "id42\r\neth0")
		}
	}
	if !b.isTrusted() {
		t.Fatal("a write in place changed the directory's time")
	}
	b.del("id42", "eth0", "10.1.0.43")
	b.del("id42", "eth0", "")
}

// What the index says is verified, also where it is trusted wrongly: here the
// lease is made another's in place, which the directory's time does not show.
func TestIndexIsVerified(t *testing.T) {
	b := newBench(t)
	b.add("old", small)
	b.put("10.1.2.2", "new\r\neth0")
	if !b.isTrusted() {
		t.Fatal("a write in place changed the directory's time")
	}
	b.del("old", "eth0", "")
	if got := b.files()["10.1.2.2"]; got != "new\r\neth0" {
		t.Errorf("the file holds %q", got)
	}
	b.del("new", "eth0", "10.1.2.2")
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
		"the index cut": func(b *bench) { _ = os.Truncate(b.index, 50) },
		"another boot": func(b *bench) {
			f, _ := os.OpenFile(b.index, os.O_WRONLY, 0)
			_, _ = f.WriteAt([]byte("0"), 20)
			_ = f.Close()
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

// A table that is damaged under a header that is in order costs a scan, never a
// wrong answer or an endless search.
func TestDamagedTable(t *testing.T) {
	for name, damage := range map[string]func(b []byte){
		"ones":    func(b []byte) { fill(b, 0xff) },
		"deleted": func(b []byte) { fill(b, 0); setAll(b, deleted) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.add("a", small)
			data, err := os.ReadFile(b.index)
			if err != nil {
				t.Fatal(err)
			}
			damage(data[headerSize:])
			if err := os.WriteFile(b.index, data, 0o600); err != nil {
				t.Fatal(err)
			}
			b.addFails("a", small)
			b.del("a", "eth0", "10.1.2.2")
		})
	}
	t.Run("cut", func(t *testing.T) {
		b := newBench(t)
		b.add("a", small)
		if err := os.Truncate(b.index, headerSize); err != nil {
			t.Fatal(err)
		}
		b.del("a", "eth0", "10.1.2.2")
	})
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

func setAll(b []byte, hash uint64) {
	for ; len(b) >= slotSize; b = b[slotSize:] {
		slot{hash: hash}.encode(b)
	}
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

func TestIndexGrows(t *testing.T) {
	x := openIndex(filepath.Join(t.TempDir(), "d", "index"), true)
	if x == nil {
		t.Fatal("no index")
	}
	defer x.close()
	if err := x.build(nil); err != nil {
		t.Fatal(err)
	}
	// Hashes as alike as can be: long stretches of slots, and round the end.
	const n, live = 5000, 2000
	entry := func(i int) slot {
		return slot{hash: uint64(fewest - 4 + i%8), address: addr(fmt.Sprintf("10.0.%d.%d", i/256, i%256))}
	}
	for i := range n {
		if err := x.add(entry(i)); err != nil {
			t.Fatal(err)
		}
		if i >= live {
			if err := x.remove(entry(i - live)); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := 0
	for h := range uint64(8) {
		addresses, err := x.find(fewest - 4 + h)
		if err != nil {
			t.Fatal(err)
		}
		got += len(addresses)
	}
	if got != live {
		t.Errorf("found %d entries, want %d", got, live)
	}
	if err := x.remove(entry(0)); err == nil {
		t.Error("removed what is not there")
	}
}

// Random calls of ours and changes by others, against a plain map.
func TestStoreAgainstModel(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t)
		wide := pool(0, "10.1.0.1-10.1.0.60")
		model := map[string]string{} // id to address
		taken := func(a string) bool {
			for _, have := range model {
				if have == a {
					return true
				}
			}
			return false
		}
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
				_ = os.Remove(b.index)
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
		leases, err := b.Leases()
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, l := range leases {
			got = append(got, l.Address.String()+" "+l.Owner.ContainerID)
		}
		for id, a := range model {
			want = append(want, a+" "+id)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: got %v\nwant %v", seed, got, want)
		}
	}
}
