package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/pkg/process/box"
)

// TestSource unpacks the vendored archive where there is no network, no module and no other Go: all packages of the programs and their tests are in it,
// and so is what the programs don't make. `make offline-build` builds it.
func TestSource(t *testing.T) {
	dir := unpack(t, artefacts(t, "cnibox-*-vendor.tar.gz")[0], `tar xzf "$file" --strip-components 1`)
	printed, err := run(dir, `unshare -n env GOMODCACHE="$PWD/none" GOFLAGS=-mod=vendor GOTOOLCHAIN=local go list -deps -test ./... | wc -l`)
	if err != nil {
		t.Errorf("%v\n%s", err, printed)
	}
	for _, file := range []string{"LICENSE", "share/doc/" + noticesFile, "share/man/man1/cnictl-show.1", "share/completion/cnictl.bash", "vendor/modules.txt", "dist/debian/rules"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "scripts/install-system.sh")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("scripts/install-system.sh can't be run: %v %v", info, err)
	}
}

// distributed is what the files to start from for a distribution make of a package.
type distributed struct {
	name     string
	patterns []string // its files
}

// of tells whether a package has a file: by its name, a pattern, or the directory that it is in.
func (d distributed) of(file string) int {
	return slices.IndexFunc(d.patterns, func(p string) bool {
		is, _ := path.Match(p, file)
		return is || strings.HasPrefix(file, p+"/")
	})
}

// TestDistributionsPackages compares what dist/debian and dist/rpm put into packages with those of the release: the same files in the same packages,
// but for texts that each distribution has in its own way.
func TestDistributionsPackages(t *testing.T) {
	for _, c := range []struct {
		kind, list string // prints a package's files
		file       string // of the package
		packages   []distributed
	}{
		{"debian", `dpkg-deb --fsys-tarfile "$0" | tar t | grep -v '/$' | cut -c 2-`, "_*.deb", debianPackages(t)},
		{"rpm", `rpm -qlvp "$0" | grep -v ^d | awk '{print $NF}'`, "-[0-9]*.rpm", rpmPackages(t)},
	} {
		for _, p := range c.packages {
			found := artefacts(t, p.name+c.file)
			out, err := exec.Command("bash", "-o", "pipefail", "-c", c.list, found[0]).Output()
			if err != nil {
				t.Fatalf("%s: %v", found[0], err)
			}
			used := map[int]bool{}
			for _, file := range strings.Fields(string(out)) {
				if regexp.MustCompile(`^/usr/share/(doc|licenses|lintian)/`).MatchString(file) {
					continue
				}
				var has []string
				for _, other := range c.packages {
					if i := other.of(file); i >= 0 {
						has = append(has, other.name)
						used[i] = used[i] || other.name == p.name
					}
				}
				if !slices.Equal(has, []string{p.name}) {
					t.Errorf("%s: %s is in %q, want it in %s", c.kind, file, has, p.name)
				}
			}
			for i, pattern := range p.patterns {
				if !used[i] {
					t.Errorf("%s: nothing of %s is %s", c.kind, p.name, pattern)
				}
			}
		}
	}
}

func debianPackages(t *testing.T) (list []distributed) {
	t.Helper()
	for _, name := range programs { // each has a package of its own
		text, err := os.ReadFile("../../dist/debian/" + name + ".install")
		if err != nil {
			t.Fatal(err)
		}
		d := distributed{name: name}
		for line := range strings.Lines(string(text)) {
			d.patterns = append(d.patterns, "/"+strings.TrimSpace(line))
		}
		list = append(list, d)
	}
	return list
}

// rpmPackages has rpm read the spec.
func rpmPackages(t *testing.T) (list []distributed) {
	t.Helper()
	spec, err := exec.Command("rpmspec", "-P", "../../dist/rpm/cnibox.spec").Output()
	if err != nil {
		t.Fatalf("rpmspec -P: %v", err)
	}
	in := false
	for line := range strings.Lines(string(spec)) {
		line = strings.TrimSpace(line)
		of, isList := strings.CutPrefix(line, "%files")
		switch {
		case isList && of == "":
			list, in = append(list, distributed{name: "cnibox"}), true
		case isList:
			of = strings.TrimSpace(of)
			own, is := strings.CutPrefix(of, "-n ")
			if !is {
				own = "cnibox-" + of
			}
			list, in = append(list, distributed{name: own}), true
		case line == "%changelog":
			in = false
		case in && strings.HasPrefix(line, "/"):
			list[len(list)-1].patterns = append(list[len(list)-1].patterns, line)
		}
	}
	if len(list) != 3 {
		t.Fatalf("the spec has %d lists of files:\n%s", len(list), spec)
	}
	return list
}

// TestDistributionsFields compares what the packages say of themselves.
func TestDistributionsFields(t *testing.T) {
	rpmSays := `rpm %s --qf '@@%{NAME}\n%{SUMMARY}\n%{DESCRIPTION}\n[%{PROVIDES} %{PROVIDEVERSION}\n][conflict %{CONFLICTS}\n][obsolete %{OBSOLETES}\n][suggest %{SUGGESTS}\n]' `
	for _, name := range programs {
		for _, c := range []struct{ made, start string }{
			{`dpkg-deb -f $(ls bin/release/` + name + `_*.deb | head -n 1) Provides Conflicts Replaces Suggests Description`,
				`awk -v RS= '/^Package: ` + name + `\n/' dist/debian/control | grep -v -e ^Package: -e ^Architecture: -e ^Depends: -e '^$'`},
			{strings.Replace(rpmSays, "%s", "-qp", 1) + `$(ls bin/release/` + name + `-[0-9]*.rpm | head -n 1)`,
				strings.Replace(rpmSays, "rpm %s", "rpmspec -q", 1) + `dist/rpm/cnibox.spec | awk -v RS=@@ '/^` + name + `\n/'`},
		} {
			const lines = ` | sed 's/^@@//; /(.*-64)/d; /^$/d' | sort -u`
			made, errMade := run("../..", c.made+lines)
			start, errStart := run("../..", c.start+lines)
			if errMade != nil || errStart != nil || made != start {
				t.Errorf("%s: %v %v: the release's package says\n%s\nand dist\n%s", name, errMade, errStart, made, start)
			}
		}
	}
	for _, c := range []string{`dpkg-parsechangelog -l dist/debian/changelog -S Version`, `rpmspec -q --srpm --qf '%{VERSION}-1\n' dist/rpm/cnibox.spec`} {
		if printed, err := run("../..", c); err != nil || printed != box.Version+"-1\n" {
			t.Errorf("%s: %v: %s, want %s", c, err, printed, box.Version)
		}
	}
}
