package runtimes

import (
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// CNIVersion returns the version of CNI that networks for the runtime should have, and why. 1.0.0 is what all of them know.
func (r Runtime) CNIVersion(ctx context.Context) (version, why string) {
	const old, newer = "1.0.0", "1.1.0"
	i := slices.IndexFunc(configurations, func(c configuration) bool { return c.Name == r.Name })
	if i < 0 || configurations[i].since110 == [2]int{} {
		return old, r.Name + " knows no newer one"
	}
	c := configurations[i]
	if r.format >= 3 { // containerd's, since its version 2
		return newer, r.Files[len(r.Files)-1] + " is of containerd 2"
	}
	program := c.Process
	if c.partOf != "" {
		program = c.word
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, program, "--version").Output()
	has := versionIn(string(text))
	switch {
	case err != nil || has == [2]int{}:
		return old, "which version of " + r.Name + " there is could not be found out"
	case slices.Compare(has[:], c.since110[:]) >= 0:
		return newer, r.Name + " " + dotted(has) + " knows it"
	}
	return old, r.Name + " " + dotted(has) + " may know no newer one"
}

var number = regexp.MustCompile(`\bv?(\d+)\.(\d+)`)

// versionIn returns the version that a program prints, such as "containerd github.com/containerd/containerd/v2 v2.1.4".
func versionIn(text string) (version [2]int) {
	m := number.FindStringSubmatch(text)
	for i := range version {
		if m != nil {
			version[i], _ = strconv.Atoi(m[i+1])
		}
	}
	return version
}

func dotted(v [2]int) string { return strconv.Itoa(v[0]) + "." + strconv.Itoa(v[1]) }
