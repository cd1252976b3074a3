package presence

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/netns"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/test/netlab"
)

func TestMain(m *testing.M) { netlab.Main(m) }

// TestNetnsMounts: a line that is about something else, however odd, hides none of a network namespace.
func TestNetnsMounts(t *testing.T) {
	list := strings.Join([]string{
		"30 25 0:4 net:[4026532193] /run/netns/web rw shared:1 - nsfs nsfs rw",
		"31 25 0:4 mnt:[4026532194] /run/ns rw - nsfs nsfs rw",
		"32 25 0:5 / /home/" + strings.Repeat("long/", 50_000) + " rw - fuse net:[4026532195] rw",
		`33 25 0:6 / /odd\9 rw - ext4 /dev/sda rw`,
		"34 25", "",
		`35 25 0:4 net:[4026532196] /run/netns/we\040b rw shared:1 - nsfs nsfs rw`,
	}, "\n") + "\n"
	mounts, err := netnsMounts(strings.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mounts {
		got = append(got, m.Root+" "+m.Mountpoint)
	}
	if want := []string{"net:[4026532193] /run/netns/web", "net:[4026532196] /run/netns/we b"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

var key = plugin.Key{Network: "a", ContainerID: "b", IfName: "eth0"}

// TestAboutResults: without a note the path in libcni's result counts, and what is not known is not gone.
func TestAboutResults(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a-b-eth0")
	plain, loop := filepath.Join(dir, "plain"), filepath.Join(dir, "loop")
	if err := errors.Join(os.WriteFile(plain, nil, 0o600), os.Symlink("loop", loop)); err != nil {
		t.Fatal(err)
	}
	result := func(id, netns string) string {
		return `{"kind":"cniCacheV1","networkName":"a","containerId":"` + id + `","ifName":"eth0","netns":"` + netns + `"}`
	}
	old := func(ifName, netns string) string { // as libcni before 1.2 writes it
		return `{"kind":"cniCacheV1","networkName":"a","containerId":"b","ifName":"eth0","result":{"interfaces":[{"name":"cni0"},{"name":"` + ifName + `","sandbox":"` + netns + `"}]}}`
	}
	for _, test := range []struct {
		text string
		want State
	}{
		{old("eth0", dir+"/none"), Gone},
		{old("eth1", dir+"/none"), Unknown},
		{old("eth0", ""), Unknown},
		{result("b", dir+"/none"), Gone},
		{result("b", "/proc/0/ns/net"), Gone},
		{result("b", plain), Gone},
		{result("b", dir+"/hidden/none"), Unknown},
		{result("b", loop), Unknown},
		{result("b", ""), Unknown},
		{result("other", dir+"/none"), Unknown},
		{"null", Unknown}, {"", Unknown}, {"{", Unknown}, {"[]", Unknown},
	} {
		written := time.Now().Add(-time.Hour)
		if err := errors.Join(os.WriteFile(file, []byte(test.text), 0o600), os.Chtimes(file, written, written)); err != nil {
			t.Fatal(err)
		}
		about := func(since time.Time) Verdict {
			return NewHost(Notes(dir + "/notes")).About(Asked{Key: key, Results: dir, Since: since})
		}
		if is := about(written.Add(-time.Second)); is.State != test.want || is.IsProven {
			t.Errorf("%s: %+v", test.text, is)
		}
		if is := about(written.Add(time.Second)); is.State != Unknown {
			t.Errorf("%s: %+v, though the result is older", test.text, is)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if is := NewHost(Notes(dir)).About(Asked{Key: key, Results: dir}); is.State != Unknown {
		t.Errorf("without a result: %+v", is)
	}
}

// TestNotes writes notes about our own namespace, which only an ADD gets that is asked to attach the host itself.
func TestNotes(t *testing.T) {
	notes := Notes(filepath.Join(t.TempDir(), "notes"))
	pair := netns.NewPair("/proc/self/ns/net", true)
	defer pair.Close()
	write := func(path string) bool {
		t.Helper()
		isNew, err := notes.Write(key, path, pair, true)
		if err != nil {
			t.Fatal(err)
		}
		return isNew
	}
	if !write("/proc/self/ns/net") || write("/proc/self/ns/net") || !write("/proc/thread-self/ns/net") {
		t.Error("it is not said whether a note is new")
	}
	if isNew, err := notes.Write(key, "/proc/self/ns/net", pair, false); isNew || !errors.Is(err, fs.ErrExist) {
		t.Errorf("another note is replaced: %v, %v", isNew, err)
	}
	note, err := notes.Read(key)
	if err != nil || note.Key != key || note.Netns != "/proc/thread-self/ns/net" || note.Inode != inodeOf("/proc/self/ns/net") || note.Boot != bootID() || note.Boot == "" || note.Uptime == 0 {
		t.Errorf("%+v, %v", note, err)
	}
	of := func(n Note) Verdict { return NewHost(notes).Of(Claim{Key: key, Note: &n}) }
	if is := of(*note); is.State != Alive {
		t.Errorf("%+v", is)
	}
	for adding, want := range map[string]State{"": Alive, note.Netns: Unknown, "/proc/self/ns/net": Alive} {
		if is := NewHost(notes).About(Asked{Key: key, Results: t.TempDir(), Adding: adding}); is.State != want {
			t.Errorf("asked by an ADD for %s: %+v", adding, is)
		}
	}
	for what, change := range map[string]func(n *Note){
		"another boot":   func(n *Note) { n.Boot = "other" },
		"another inode":  func(n *Note) { n.Inode++ },
		"another cookie": func(n *Note) { n.Cookie++ },
	} {
		other := *note
		change(&other)
		if is := of(other); is.State != Gone || !is.IsProven {
			t.Errorf("%s: %+v", what, is)
		}
	}
	elsewhere := *note
	elsewhere.PIDs, elsewhere.Inode = 1, 1
	if is := of(elsewhere); is.State != Unknown || !strings.Contains(is.Why, "processes of the host") {
		t.Errorf("whose processes can't be seen: %+v", is)
	}
	for name, text := range map[string]string{"torn": `{"network"`, "empty": "", filepath.Base(notes.path(plugin.Key{})): string(note.text()), ".x": string(note.text())} {
		if err := os.WriteFile(filepath.Join(string(notes), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	held, err := notes.Held(t.Context(), "a")
	if err != nil || len(held) != 1 || held[0].Key != key {
		t.Errorf("%+v, %v", held, err)
	}
	write("/proc/self/ns/net")
	if err := notes.Release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if note, _ := notes.Read(key); note == nil {
		t.Error("a note was removed that was written again after it was listed")
	}
	if err := errors.Join(notes.Remove(key), notes.Remove(key)); err != nil {
		t.Error(err)
	}
}

// TestSameInode: where the kernel has no cookies, a namespace is that of the last ADD that has noted its inode.
func TestSameInode(t *testing.T) {
	notes := Notes(t.TempDir())
	own := Note{Key: key, Netns: "/proc/self/ns/net", Inode: inodeOf("/proc/self/ns/net"), Boot: bootID(), Uptime: 2, PIDs: inodeOf("/proc/self/ns/pid")}
	failed := own
	failed.ContainerID, failed.Netns, failed.Uptime = "failed", "/proc/0/ns/net", 1
	for _, n := range []Note{own, failed} {
		if err := os.WriteFile(notes.path(n.Key), n.text(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, n := range map[State]Note{Alive: own, Gone: failed} {
		if is := NewHost(notes).Of(Claim{Key: n.Key, Note: &n}); is.State != want {
			t.Errorf("%s: %+v", n.ContainerID, is)
		}
	}
}

// TestManyAddresses: of a container that has too many addresses for another's memory that is said.
func TestManyAddresses(t *testing.T) {
	pod := netlab.NewHost(t).NewPod(t, "a")
	pod.MustRun(t, "sh", "-ec", "ip address add 10.1.0.1/24 dev lo; ip address add 10.1.0.2 peer 10.1.0.3 dev lo; ip address add fd00::1/64 dev lo nodad")
	pod.Do(func() {
		const own = "/proc/thread-self/ns/net"
		in := &Namespace{Inode: inodeOf(own), Paths: []string{own}}
		if list, err := in.interfaces(AnyAddress, 3); err != nil || fmt.Sprint(list[0].Addresses) != "[10.1.0.1/24 10.1.0.2/32 fd00::1/64]" {
			t.Errorf("%+v %v", list, err)
		}
		is := func(a netip.Addr) bool { return a == netip.MustParseAddr("10.1.0.2") }
		if list, err := in.interfaces(is, 1); err != nil || fmt.Sprint(list[0].Addresses) != "[10.1.0.2/32]" {
			t.Errorf("%+v %v", list, err)
		}
		if _, err := in.interfaces(AnyAddress, 2); err == nil || !strings.Contains(err.Error(), "more than 2 addresses") {
			t.Error(err)
		}
	})
}

// TestMadeAgainByOthers: another suite's plugin notes nothing. What it has made again in a namespace at the same path or at another one, or let go and made
// again, is alive.
func TestMadeAgainByOthers(t *testing.T) {
	host := netlab.NewHost(t)
	pod, elsewhere := host.NewPod(t, "web"), host.NewPod(t, "elsewhere")
	const mac = "02:00:00:00:00:09"
	pod.MustRun(t, "ip", "link", "add", "eth0", "address", mac, "type", "veth", "peer", "name", "eth1")
	elsewhere.MustRun(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
	host.Do(func() {
		n := Notes(t.TempDir())
		note := &Note{Key: key, Netns: pod.Path(), Inode: 1, Cookie: 1, Boot: bootID(), PIDs: inodeOf("/proc/self/ns/pid")}
		for reported, want := range map[string]State{mac: Alive, "02:00:00:00:00:07": Replaced, "": Replaced} {
			v := NewHost(n).Of(Claim{Key: key, Note: note, HasResult: true, Netns: pod.Path(), MAC: reported})
			if v.State != want {
				t.Errorf("%q: %s, %s", reported, v.State, v.Why)
			}
		}
		// A result of CNI 0.2.0 has no MAC address.
		if v := NewHost(n).Of(Claim{Key: key, Note: note, HasResult: true, Netns: elsewhere.Path()}); v.State != Alive {
			t.Errorf("at another path: %s, %s", v.State, v.Why)
		}
		file := n.path(key)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Error(err)
		}
		n.BeginDel(t.Context(), key)
		for made, want := range map[time.Time]bool{{}: true, time.Now().Add(-time.Hour): true, time.Now().Add(time.Hour): false} {
			if is := n.IsDeleting(key, made); is != want {
				t.Errorf("a DEL before an ADD of %v has begun: %v", made, is)
			}
		}
		if err := os.Chmod(file, 0o400); err != nil || n.IsDeleting(key, time.Time{}) {
			t.Error("a mode that others set is taken for a DEL", err)
		}
	})
}

// TestCovered: a namespace whose mount is covered by another one is found by its process.
func TestCovered(t *testing.T) {
	host := netlab.NewHost(t)
	pod := host.NewPod(t, "web")
	pod.Background(t, pod.Command("sleep", "infinity"))
	host.Do(func() {
		inode := inodeOf(pod.Path())
		host.MustRun(t, "mount", "-t", "tmpfs", "tmpfs", "/run/netns")
		defer host.MustRun(t, "umount", "/run/netns")
		h := NewHost(Notes(t.TempDir()))
		h.look()
		if s := h.namespaces[inode]; s == nil || !strings.HasPrefix(s.Path(), "/proc/") || inodeOf(s.Path()) != inode {
			t.Errorf("%+v", s)
		}
	})
}

// TestCountsFor: other plugins may have made the attachment again, and note nothing.
func TestCountsFor(t *testing.T) {
	note := &Note{Written: time.Now().Add(24 * time.Hour)} // the clock was set back
	for after, want := range map[time.Duration]bool{-time.Second: true, time.Minute: true, time.Hour: false} {
		if got := note.CountsFor(note.Written.Add(after)); got != want {
			t.Errorf("what was written %v after it: %v", after, got)
		}
	}
	if !note.CountsFor(time.Time{}) || (*Note)(nil).CountsFor(time.Time{}) {
		t.Error("without anything else, or without a note")
	}
}

// TestDeleting: a DEL waits while something is put back, and nothing is once it has begun.
func TestDeleting(t *testing.T) {
	n := Notes(t.TempDir())
	if lock, err := n.DelayDel(t.Context(), key, time.Time{}); lock != nil || err != nil {
		t.Fatalf("without a note: %v, %v", lock, err)
	}
	if err := os.WriteFile(n.path(key), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := n.DelayDel(t.Context(), key, time.Time{})
	if lock == nil || err != nil {
		t.Fatalf("with a note: %v, %v", lock, err)
	}
	begun := make(chan struct{})
	go func() {
		n.BeginDel(t.Context(), key)
		close(begun)
	}()
	var file unix.Stat_t
	if err := unix.Stat(n.path(key), &file); err != nil {
		t.Fatal(err)
	}
	netlab.Until(t, "DEL to wait", func() bool {
		select {
		case <-begun:
			t.Fatal("DEL does not wait")
		default:
		}
		locks, _ := os.ReadFile("/proc/locks")
		return strings.Count(string(locks), fmt.Sprintf(":%d 0 EOF", file.Ino)) > 1
	})
	if !n.IsDeleting(key, time.Time{}) {
		t.Error("nobody sees that DEL waits")
	}
	lock.Release()
	<-begun
	if _, err := n.DelayDel(t.Context(), key, time.Time{}); !errors.Is(err, ErrDeleting) || !n.IsDeleting(key, time.Now().Add(-time.Minute)) {
		t.Errorf("after its DEL has begun: %v", err)
	}
}

// TestHasJustEnded: who has ended while it was looked at hides nothing. The kernel says "permission denied" of some of them.
func TestHasJustEnded(t *testing.T) {
	for process, isUnread := range map[string]bool{"4194305": false, "self/task/4194305": false, "self": true, "1": false, "1/task/1": false} {
		h := &Host{}
		if h.couldNot(process, &fs.PathError{Op: "readlink", Path: process, Err: unix.EACCES}); (h.unread != nil) != isUnread {
			t.Errorf("%s: %v", process, h.unread)
		}
	}
}
