// Command release packs what scripts/release.sh has built into the artefacts of a release.
//
// Each kind of artefact is a file of this package, with one function that takes a Release.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cnibox/cnibox/pkg/process/box"
)

// Release is one version, built, and where its artefacts go.
type Release struct {
	Version  string          // v1.0.0
	Time     time.Time       // of the commit: every time in an artefact
	Commit   string          // what it is built from
	Modified bool            // by changes that are in no commit
	Source   string          // the directory of the product's go.mod
	Commands string          // the file with cnictl's commands, which its test TestCommands writes
	Tree     string          // what is packed: linux-ARCH with the programs, and share with all that is the same for each architecture
	Out      string          // the directory that the artefacts are written into
	Arches   []string        // as Go names them
	named    map[string]bool // the artefacts that were made: these are signed, and no other file
}

// artefact returns where an artefact of that name is written to.
func (r Release) artefact(name string) string {
	r.named[name] = true
	return filepath.Join(r.Out, name)
}

// programs are what is built for each architecture.
var programs = []string{"cnibox", "cnibox-etcd", "cnictl"}

// conformance is the program that is built for some of them.
const conformance = "cni-conformance"

func main() {
	r := Release{Version: "v" + box.Version, named: map[string]bool{}}
	flag.StringVar(&r.Commit, "commit", "", "the commit that all is built from")
	flag.BoolVar(&r.Modified, "modified", false, "there are changes that are in no commit")
	flag.StringVar(&r.Source, "source", "", "the directory of the product's go.mod")
	flag.StringVar(&r.Commands, "commands", "", "the file that the manual pages are made from")
	flag.StringVar(&r.Tree, "tree", "", "the directory with what is packed")
	flag.StringVar(&r.Out, "out", "", "the directory that the artefacts are written into")
	flag.Parse()
	r.Arches = flag.Args()
	if err := r.make(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// make writes all artefacts. Those that say something of the others come last.
func (r Release) make() error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH has to be the time of the commit in seconds: %w", err)
	}
	r.Time = time.Unix(seconds, 0).UTC()
	for _, kind := range []struct {
		name string
		make func(Release) error
	}{
		{"manual pages", manual},
		{"licence texts", notices},
		{"archives", archives},
		{"source archive", source},
		{"packages", packages},
		{"system extension", sysext},
		{"image", image},
		{"SBOM", sboms},
		{"VEX", vex},
		{"nothing else", onlyArtefacts},
		{"provenance", provenance},
		{"checksums", sums},
	} {
		fmt.Println(kind.name)
		if err := kind.make(r); err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
	}
	return nil
}
