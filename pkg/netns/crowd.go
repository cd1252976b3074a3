package netns

import "golang.org/x/sys/unix"

// links is the directory in which sysfs holds all links that are not hardware,
// of all network namespaces: each has one at least, lo, and most that of an
// attachment, which has another end on the host. Their number is the
// directory's number of links (stat(2), st_nlink) less two.
const links = "/sys/devices/virtual/net"

// crowd is the number of links from which on a machine is crowded: those of 500
// attachments.
const crowd = 1500

// Crowded tells whether the machine has so many network namespaces that it pays
// to go other ways than usual. To ask takes 5 us.
func Crowded() bool {
	var st unix.Stat_t
	return unix.Stat(links, &st) == nil && st.Nlink > crowd
}
