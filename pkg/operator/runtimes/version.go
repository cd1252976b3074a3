package runtimes

import (
	"debug/buildinfo"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// CNIVersion returns the version of CNI that networks for the runtime should have, and why. 1.0.0 is what all of them know.
func (r Runtime) CNIVersion(o Options) (version, why string) {
	const old, newer = "1.0.0", "1.1.0"
	i := slices.IndexFunc(configurations, func(c configuration) bool { return c.Name == r.Name })
	if i < 0 || configurations[i].since110 == [2]int{} {
		return old, r.Name + " knows no newer one"
	}
	c := configurations[i]
	if r.format >= 3 { // containerd's, since its version 2
		return newer, r.Files[len(r.Files)-1] + " is of containerd 2"
	}
	has := c.version(o)
	switch {
	case has == [2]int{}:
		return old, "the file of " + r.Name + " does not say its version"
	case slices.Compare(has[:], c.since110[:]) >= 0:
		return newer, r.Name + " " + dotted(has) + " knows it"
	}
	return old, r.Name + " " + dotted(has) + " may know no newer one"
}

// CouldSetLoopbackUp returns where containerd's configuration is to say that it sets each pod's lo up itself; "" where it does, can't, has no pods, or
// where k3s writes the file.
func (r Runtime) CouldSetLoopbackUp(o Options) (where string) {
	i := slices.IndexFunc(configurations, func(c configuration) bool { return c.Name == r.Name })
	if i < 0 || configurations[i].sinceLoopback == [2]int{} || r.ownLoopback || r.noPods {
		return ""
	}
	if has := configurations[i].version(o); r.format < 3 && slices.Compare(has[:], configurations[i].sinceLoopback[:]) < 0 {
		return ""
	}
	if r.Files == nil {
		return configurations[i].files[0] + `, with version = 3, in [plugins."` + criRuntime + `".cni]`
	}
	if slices.ContainsFunc(r.Files, isOfK3s) {
		return ""
	}
	table := criRuntime
	if r.format < 3 {
		table = cri
	}
	return r.Files[len(r.Files)-1] + `, in [plugins."` + table + `".cni]`
}

// version returns the version of the runtime's program here, 0.0 if its file does not say it.
func (c configuration) version(o Options) [2]int {
	if c.partOf != "" {
		return versionOf(o, c.word)
	}
	return versionOf(o, c.Process)
}

// versionOf returns the version of a Go program, as its file says it, 0.0 if it does not. Nothing is run to learn it.
func versionOf(o Options, program string) (version [2]int) {
	path, err := exec.LookPath(program)
	if err != nil || !filepath.IsAbs(path) {
		return version
	}
	file, err := o.tree().Open(path)
	if err != nil {
		return version
	}
	defer file.Close()
	build, err := buildinfo.Read(file)
	if err != nil {
		return version
	}
	return versionIn(build)
}

var (
	number     = regexp.MustCompile(`^v?(\d+)\.(\d+)`)
	setVersion = regexp.MustCompile(`[vV]ersion=(v?\d+\.\d+)`) // -X github.com/k3s-io/k3s/pkg/version.Version=v1.33.1+k3s1
)

// versionIn returns the version of the main module, or the one that its makers gave to the linker. A module without one is v0.0.0-TIME-COMMIT.
func versionIn(build *buildinfo.BuildInfo) (version [2]int) {
	texts := []string{build.Main.Version}
	for _, s := range build.Settings {
		if m := setVersion.FindStringSubmatch(s.Value); s.Key == "-ldflags" && m != nil {
			texts = append(texts, m[1])
		}
	}
	for _, text := range texts {
		m := number.FindStringSubmatch(text)
		for i := range version {
			if m != nil {
				version[i], _ = strconv.Atoi(m[i+1])
			}
		}
		if version != [2]int{} {
			break
		}
	}
	return version
}

func dotted(v [2]int) string { return strconv.Itoa(v[0]) + "." + strconv.Itoa(v[1]) }
