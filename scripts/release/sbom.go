package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"

	"github.com/cnibox/cnibox/scripts/licences"
)

const (
	repository = "https://github.com/cnibox/cnibox"
	none       = "NOASSERTION"
)

// sboms writes for each architecture which modules are in its programs, by what the programs say of themselves.
func sboms(r Release) error {
	for _, arch := range r.Arches {
		if err := sbom(r, arch, "cnibox", programs); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(r.Tree, "linux-"+arch, conformance)); err == nil { // some architectures have it
			if err := sbom(r, arch, conformance, []string{conformance}); err != nil {
				return err
			}
		}
	}
	return nil
}

// sbom is of the programs that an archive has.
func sbom(r Release, arch, archive string, programs []string) error {
	modules, err := licences.Linked(r.Source, arch)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s-linux-%s-%s", archive, arch, r.Version)
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		CreationInfo: &spdx.CreationInfo{
			Created:  r.Time.Format(time.RFC3339),
			Creators: []spdx.Creator{{CreatorType: "Organization", Creator: "cnibox"}, {CreatorType: "Tool", Creator: "cnibox-release-" + r.Version[1:]}},
		},
	}
	both := sha256.New()
	known := map[spdx.ElementID]bool{}
	for _, program := range programs {
		path := filepath.Join(r.Tree, "linux-"+arch, program)
		binary, errRead := os.ReadFile(path)
		info, errInfo := buildinfo.ReadFile(path)
		if err := cmp.Or(errRead, errInfo); err != nil {
			return err
		}
		both.Write(binary)
		main := newPackage(program, r.Version, "Apache-2.0", "pkg:golang/"+info.Path+"@"+r.Version, cpe("cnibox", "cnibox", r.Version[1:]))
		main.PackageChecksums = []spdx.Checksum{{Algorithm: spdx.SHA256, Value: fmt.Sprintf("%x", sha256.Sum256(binary))}}
		main.PackageDownloadLocation = "git+" + repository + "@" + r.Version
		main.PrimaryPackagePurpose = "APPLICATION"
		doc.Packages = append(doc.Packages, main)
		relate(doc, doc.SPDXIdentifier, "DESCRIBES", main)

		goVersion := strings.TrimPrefix(info.GoVersion, "go")
		linked := []*spdx.Package{newPackage("stdlib", goVersion, "BSD-3-Clause", "pkg:golang/stdlib@"+goVersion, cpe("golang", "go", goVersion))}
		deps := info.Deps
		if program == conformance { // it is a test binary, and Go does not note in one what is linked
			for _, path := range slices.Sorted(maps.Keys(modules)) {
				if slices.Contains(modules[path].Programs, program) {
					deps = append(deps, &debug.Module{Path: path, Version: modules[path].Version})
				}
			}
		}
		for _, m := range deps {
			known, ok := modules[m.Path]
			if !ok || m.Replace != nil {
				return fmt.Errorf("%s has %s, whose licence is not known", path, m.Path)
			}
			p := newPackage(m.Path, m.Version, strings.Join(known.Licences, " AND "), "pkg:golang/"+m.Path+"@"+m.Version)
			if m.Sum != "" {
				p.PackageSourceInfo = "checksum in go.sum: " + m.Sum
			}
			linked = append(linked, p)
		}
		for _, p := range linked {
			if !known[p.PackageSPDXIdentifier] {
				known[p.PackageSPDXIdentifier] = true
				doc.Packages = append(doc.Packages, p)
			}
			relate(doc, main.PackageSPDXIdentifier, "DEPENDS_ON", p)
		}
	}
	doc.DocumentNamespace = fmt.Sprintf("%s/spdx/%s-%x", repository, name, both.Sum(nil)[:8])
	file, err := os.Create(r.artefact(name + ".spdx.json"))
	if err != nil {
		return err
	}
	defer file.Close()
	return cmp.Or(json.Write(doc, file, json.Indent("  "), json.EscapeHTML(false)), file.Close())
}

// cpe names a product as lists of vulnerabilities do. Of most modules they know none, and have them by purl.
func cpe(vendor, product, version string) *spdx.PackageExternalReference {
	escaped := regexp.MustCompile(`[^a-zA-Z0-9._]`).ReplaceAllString(version, `\\$0`)
	return &spdx.PackageExternalReference{Category: "SECURITY", RefType: "cpe23Type", Locator: fmt.Sprintf("cpe:2.3:a:%s:%s:%s:*:*:*:*:*:*:*", vendor, product, escaped)}
}

// newPackage is a module or a program. SPDX wants to know of more than we do, and NOASSERTION says so.
func newPackage(name, version, licence, purl string, more ...*spdx.PackageExternalReference) *spdx.Package {
	id := regexp.MustCompile(`[^a-zA-Z0-9.-]+`).ReplaceAllString(name, "-")
	return &spdx.Package{
		PackageName: name, PackageVersion: version, PackageSPDXIdentifier: spdx.ElementID("Package-" + id),
		PackageDownloadLocation: none, PackageLicenseDeclared: licence, PackageLicenseConcluded: licence, PackageCopyrightText: none,
		PackageExternalReferences: append([]*spdx.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: purl}}, more...),
	}
}

func relate(doc *spdx.Document, from spdx.ElementID, how string, to *spdx.Package) {
	doc.Relationships = append(doc.Relationships, &spdx.Relationship{
		RefA: spdx.DocElementID{ElementRefID: from}, RefB: spdx.DocElementID{ElementRefID: to.PackageSPDXIdentifier}, Relationship: how,
	})
}
