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
func (r *runner) facts(b *testing.B) (facts []report.Fact) {
	b.Helper()
	add := func(name, value string) { facts = append(facts, report.Fact{Name: name, Value: value}) }
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		b.Fatal(err)
	}
	add("date", time.Now().UTC().Format(time.DateOnly))
	add("CPU", fmt.Sprintf("%d × %s", runtime.NumCPU(), found("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`)))
	add("memory", fmt.Sprintf("%.0f GiB", float64(info.Totalram)*float64(info.Unit)/(1<<30)))
	add("kernel", printed("uname", "-rm"))
	add("system", found("/etc/os-release", `(?m)^PRETTY_NAME="?(.*?)"?$`))
	add("load, the benchmark's included", found("/proc/loadavg", `^(\S+ \S+ \S+)`)+" (1, 5 and 15 minutes, at the end)")
	add("Go", runtime.Version())
	add("iptables", printed("iptables", "--version"))
	add("nftables", printed("nft", "--version"))
	add("cnibox", printed(netlab.Cnibox(b), "--version")+", revision "+printed("git", "describe", "--always", "--dirty"))
	add("reference plugins", found("../reference/go.mod", `containernetworking/plugins (v\S+)`))
	if len(choose(report.Debian)) > 0 {
		add("debian plugins", printed("dpkg-query", "-W", "-f", "${Version}", "containernetworking-plugins"))
	}
	for _, v := range os.Environ() { // what changes what cnibox does
		if strings.HasPrefix(v, "CNIBOX_") && !strings.HasPrefix(v, "CNIBOX_BIN_DIR=") {
			add("environment", v)
		}
	}
	add("no-op plugins", "written in "+r.programs.noopLanguage)
	add("rounds", fmt.Sprintf("%d, or %d where an operation takes long", r.profile.rounds, r.profile.fewRounds))
	return facts
}

// found returns the part of a file that a pattern's group matches.
func found(file, pattern string) string {
	text, _ := os.ReadFile(file)
	if match := regexp.MustCompile(pattern).FindSubmatch(text); match != nil {
		return string(match[1])
	}
	return unknown
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
