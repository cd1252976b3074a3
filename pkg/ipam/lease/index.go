package lease

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/pkg/state"
)

// index answers "which addresses does this container hold" by reading one small file, where the lease files alone take a look at each lease
// of the network: an ADD takes 0.4 ms in place of 2.7 with 250 leases, and 0.8 in place of 80 with 5,000, and a DEL is as much faster. The
// previous result could tell DEL, but nothing else tells ADD what a container has already of the reference plugin, which must not get a second
// address.
//
// It is a directory of up to 64 text files, used only under the network's lock. A container's hash chooses the file that its leases are in,
// one a line:
//
//	10.88.0.5 "<content of the lease file>"
//
// The file stamp says what it is the index of. It is trusted only in the boot it was written in, and only while the directory of the leases
// has the modification time that we gave it after our own last change. That time is long past, so that no change by someone else (the
// reference plugin, rm), nor one of ours that was cut short by a kill, leaves it standing. Whatever it says is verified by reading the
// lease file, and what is not trusted is built anew from the lease files.
type index struct {
	path    string
	leases  string    // the directory it is the index of
	boot    string    // names the boot
	what    string    // names that directory
	began   time.Time // when this boot did, by the earliest that the clock has said
	trusted bool      // it says what the files say
	changed bool      // it, or that directory, is not as it was opened
}

// indexFiles is how many files the leases are spread over.
const indexFiles = 64

// openIndex looks whether the index can be trusted.
func openIndex(path, leases string) *index {
	x := &index{path: path, leases: leases, began: bootTime()}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var st unix.Stat_t
	if err != nil || unix.Stat(leases, &st) != nil {
		return x
	}
	x.boot = fmt.Sprintf("boot %.36s began ", id)
	x.what = fmt.Sprintf(" device %016x inode %016x", st.Dev, st.Ino)
	text, _ := state.Read(x.stamp())
	began, ok := x.beganBy(string(text))
	if !ok {
		return x
	}
	if began.Before(x.began) { // the clock was set forward since
		x.began = began
	}
	x.trusted = string(text) == x.describe(began, time.Unix(0, st.Mtim.Nano()))
	return x
}

// bootTime returns when this boot began, as the clock says now.
func bootTime() time.Time {
	var since unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &since) != nil {
		return time.Unix(0, 0)
	}
	return time.Now().Add(-time.Duration(since.Nano()))
}

func (x *index) stamp() string { return filepath.Join(x.path, "stamp") }

// describe returns the stamp for a modification time.
func (x *index) describe(began, mtime time.Time) string {
	return fmt.Sprintf("%s%d%s time %016x\n", x.boot, began.UnixNano(), x.what, mtime.UnixNano())
}

// beganBy returns when this boot began by a stamp of it.
func (x *index) beganBy(stamp string) (began time.Time, ok bool) {
	rest, ok := strings.CutPrefix(stamp, x.boot)
	number, _, _ := strings.Cut(rest, " ")
	nanoseconds, err := strconv.ParseInt(number, 10, 64)
	return time.Unix(0, nanoseconds), ok && err == nil
}

// seal makes the index trusted. One that can't be sealed is built anew by the next session, which is all there is to do about it.
func (x *index) seal() {
	if !x.trusted || !x.changed {
		return
	}
	mtime := sealTime(time.Now())
	if overwrite(x.stamp(), x.describe(x.began, mtime)) == nil {
		_ = os.Chtimes(x.leases, time.Time{}, mtime)
	}
}

// sealTime returns a time between 1990 and 2007, in whole and even seconds, which
// every filesystem keeps, and another one for each microsecond of four minutes.
func sealTime(now time.Time) time.Time {
	const in1990, span = 631152000, 1 << 28
	return time.Unix(in1990+2*(now.UnixMicro()%span), 0)
}

// file returns the file that a container's leases are in.
func (x *index) file(containerID string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(containerID))
	return filepath.Join(x.path, fmt.Sprintf("%02x", h.Sum32()%indexFiles))
}

func (x *index) lines(containerID string) ([]string, error) {
	text, err := state.Read(x.file(containerID))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return slices.Collect(strings.Lines(string(text))), nil
}

func (l Lease) line() string { return fmt.Sprintf("%s %q\n", l.Address, format(l.Owner)) }

// find returns the leases of a container in the network.
func (x *index) find(network, containerID string) (leases []Lease, err error) {
	lines, err := x.lines(containerID)
	prefix := strings.TrimSuffix(strconv.Quote(containerID), `"`)
	for _, line := range lines {
		name, quoted, ok := strings.Cut(line, " ")
		quoted, whole := strings.CutSuffix(quoted, "\n")
		if !ok || !whole {
			return nil, errors.New("a damaged line")
		}
		if !strings.HasPrefix(quoted, prefix) {
			continue
		}
		address, err := netip.ParseAddr(name)
		content, unquoteErr := strconv.Unquote(quoted)
		if err != nil || unquoteErr != nil {
			return nil, errors.Join(err, unquoteErr)
		}
		if owner, _ := parse(network, content); owner.ContainerID == containerID {
			leases = append(leases, Lease{Address: address, Owner: owner})
		}
	}
	return leases, err
}

// add notes a lease that was made.
func (x *index) add(l Lease) {
	x.changed = true
	if !x.trusted {
		return
	}
	f, err := os.OpenFile(x.file(l.Owner.ContainerID), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteString(l.line())
		err = errors.Join(err, f.Close())
	}
	x.trusted = err == nil
}

// remove notes that a lease was removed.
func (x *index) remove(l Lease) {
	x.changed = true
	if !x.trusted {
		return
	}
	path := x.file(l.Owner.ContainerID)
	lines, err := x.lines(l.Owner.ContainerID)
	at := slices.Index(lines, l.line())
	switch {
	case at < 0:
		err = errors.Join(err, os.ErrNotExist)
	case len(lines) == 1:
		err = os.Remove(path)
	default:
		err = overwrite(path, strings.Join(slices.Delete(lines, at, at+1), ""))
	}
	x.trusted = err == nil
}

// build writes the index anew.
func (x *index) build(leases []Lease) {
	files := map[string][]byte{}
	for _, l := range leases {
		path := x.file(l.Owner.ContainerID)
		files[path] = append(files[path], l.line()...)
	}
	_ = os.Remove(x.stamp()) // before the rest: not trusted while half written
	err := errors.Join(os.RemoveAll(x.path), os.MkdirAll(x.path, 0o700))
	for path, text := range files {
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
	}
	x.trusted, x.changed = err == nil, true
}
