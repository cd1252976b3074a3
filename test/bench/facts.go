package bench

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cnibox/cnibox/test/bench/report"
	"github.com/cnibox/cnibox/test/netlab"
)

// facts describe the machine and what was measured, without the machine's name.
func (r *runner) facts(b *testing.B) []report.Fact {
	b.Helper()
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		b.Fatal(err)
	}
	facts := []report.Fact{
		{Name: "date", Value: time.Now().UTC().Format(time.DateOnly)},
		{Name: "CPU", Value: fmt.Sprintf("%d × %s", runtime.NumCPU(), found("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`))},
		{Name: "memory", Value: memory()},
		{Name: "kernel", Value: unix.ByteSliceToString(uname.Release[:]) + " " + unix.ByteSliceToString(uname.Machine[:])},
		{Name: "system", Value: found("/etc/os-release", `(?m)^PRETTY_NAME="?(.*?)"?$`)},
		{Name: "load, the benchmark's included", Value: found("/proc/loadavg", `^(\S+ \S+ \S+)`) + " (1, 5 and 15 minutes, at the end)"},
		{Name: "Go", Value: runtime.Version()},
		{Name: "iptables", Value: printed("iptables", "--version")},
		{Name: "nftables", Value: printed("nft", "--version")},
		{Name: "cnibox", Value: printed(netlab.Cnibox(b), "--version") + ", revision " + printed("git", "describe", "--always", "--dirty")},
		{Name: "reference plugins", Value: found("../reference/go.mod", `containernetworking/plugins (v\S+)`)},
	}
	if len(choose(report.Debian)) > 0 {
		facts = append(facts, report.Fact{Name: "debian plugins", Value: printed("dpkg-query", "-W", "-f", "${Version}", "containernetworking-plugins")})
	}
	if env := settings(os.Environ()); env != "" {
		facts = append(facts, report.Fact{Name: "environment", Value: env})
	}
	return append(facts,
		report.Fact{Name: "no-op plugins", Value: "written in " + r.programs.noopLanguage},
		report.Fact{Name: "rounds", Value: fmt.Sprintf("%d, or %d where an operation takes long", r.profile.rounds, r.profile.fewRounds)})
}

// settings returns the variables that change what cnibox does.
func settings(environ []string) string {
	var set []string
	for _, v := range environ {
		if strings.HasPrefix(v, "CNIBOX_") && !strings.HasPrefix(v, "CNIBOX_BIN_DIR=") {
			set = append(set, v)
		}
	}
	return strings.Join(set, " ")
}

// memory returns how much the machine has.
func memory() string {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return unknown
	}
	return fmt.Sprintf("%.0f GiB", float64(info.Totalram)*float64(info.Unit)/(1<<30))
}

// found returns the part of a file that a pattern's group matches.
func found(file, pattern string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return unknown
	}
	match := regexp.MustCompile(pattern).FindSubmatch(text)
	if match == nil {
		return unknown
	}
	return string(match[1])
}

// printed returns the first line that a program prints.
func printed(program string, args ...string) string {
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		return unknown
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

const unknown = "unknown"
