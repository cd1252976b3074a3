package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// verify is what docs/project/releases.md tells people to run, with programs that are not ours.
var verify = map[string]string{
	"checksums": `sha256sum --check --quiet SHA256SUMS`,
	"signature": `openssl base64 -d -in SHA256SUMS.sig -out sig
openssl dgst -sha256 -verify cnibox.pub -signature sig SHA256SUMS`,
	"provenance": `jq -r .payload cnibox-*.intoto.jsonl | base64 -d >statement
jq -r '.signatures[0].sig' cnibox-*.intoto.jsonl | base64 -d >sig
{ printf 'DSSEv1 28 application/vnd.in-toto+json %d ' "$(wc -c <statement)"; cat statement; } >signed
openssl dgst -sha256 -verify cnibox.pub -signature sig signed
jq -r '.subject[] | .digest.sha256 + "  " + .name' statement | sha256sum --check --quiet`,
}

// run runs a script in a directory, which stops at what fails first.
func run(dir, script string) (string, error) {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = dir
	printed, err := cmd.CombinedOutput()
	return string(printed), err
}

// TestVerifyIsWhatTheManualSays compares the commands with those of the page.
func TestVerifyIsWhatTheManualSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/project/releases.md")
	if err != nil {
		t.Fatal(err)
	}
	for what, script := range verify {
		for command := range strings.Lines(script + "\n") {
			if !strings.Contains(string(page), "\n$ "+command) {
				t.Errorf("%s: the page lacks %s", what, command)
			}
		}
	}
}

// newKey makes a throw-away key, with the command that the documentation names.
func newKey(t *testing.T) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key.pem")
	if printed, err := run(".", "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "+key); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	return key
}

// signed is a release with two artefacts, signed.
func signed(t *testing.T) Release {
	t.Helper()
	r := Release{Version: "v1.2.3", Time: modified, Commit: "288ebcd524fa07bf5619dca97c3597e34d0ded7c", Out: t.TempDir(), Arches: []string{"amd64"}, named: map[string]bool{}}
	for _, name := range []string{"cnibox.tgz", "cnibox.deb"} {
		if err := os.WriteFile(r.artefact(name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := provenance(r); err != nil {
		t.Fatal(err)
	}
	if err := sums(r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSignaturesAreVerifiedByOthers(t *testing.T) {
	t.Setenv("SIGNING_KEY", newKey(t))
	for _, c := range []struct{ name, change, refused string }{
		{"nothing changed", "", ""},
		{"an artefact", `printf x >>cnibox.deb`, "checksums provenance"},
		{"a checksum", `sed -i s/cnibox.deb/cnibox.rpm/ SHA256SUMS; cp cnibox.deb cnibox.rpm`, "signature"},
		{"the statement", `jq -c '.payload |= (@base64d | sub("288e"; "388e") | @base64)' cnibox-*.jsonl >x; mv x cnibox-v1.2.3.intoto.jsonl`, "checksums provenance"},
		{"the key", `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 | openssl pkey -pubout -out cnibox.pub`, "provenance signature"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := signed(t)
			if printed, err := run(r.Out, c.change); err != nil {
				t.Fatalf("%v\n%s", err, printed)
			}
			for what, script := range verify {
				printed, err := run(r.Out, script)
				if refused := err != nil; refused != strings.Contains(c.refused, what) {
					t.Errorf("%s: %v\n%s", what, err, printed)
				}
			}
		})
	}
}

// TestSignaturesAreReproducible makes sure that a release that is built again has the same signature, though ECDSA is random elsewhere.
func TestSignaturesAreReproducible(t *testing.T) {
	t.Setenv("SIGNING_KEY", newKey(t))
	printed, err := run(".", "diff -r "+signed(t).Out+" "+signed(t).Out)
	if err != nil {
		t.Errorf("%v\n%s", err, printed)
	}
}

func TestUnsigned(t *testing.T) {
	t.Setenv("SIGNING_KEY", "")
	r := signed(t)
	printed, err := run(r.Out, "ls; sha256sum --check --quiet SHA256SUMS")
	if err != nil || printed != "SHA256SUMS\ncnibox.deb\ncnibox.tgz\n" {
		t.Errorf("%v\n%s", err, printed)
	}
}

// TestOnlyArtefactsAreSigned puts a file of somebody else into the directory of a release.
func TestOnlyArtefactsAreSigned(t *testing.T) {
	t.Setenv("SIGNING_KEY", newKey(t))
	for _, name := range []string{"notes.txt", "other.tgz.sha256"} {
		r := signed(t)
		if printed, err := run(r.Out, "rm SHA256SUMS* cnibox.pub; touch "+name); err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
		if err := onlyArtefacts(r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("with %s: %v", name, err)
		}
		if err := sums(r); err != nil {
			t.Fatal(err)
		}
		if printed, err := run(r.Out, "! grep "+name+" SHA256SUMS"); err != nil {
			t.Errorf("%s is signed: %s", name, printed)
		}
	}
}

func TestWrongKeysAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, words := range map[string]string{"missing": "no such file", "text": "no PEM file", "rsa": "P-256"} {
		t.Setenv("SIGNING_KEY", filepath.Join(dir, name))
		if name == "text" {
			_ = os.WriteFile(filepath.Join(dir, name), []byte("key"), 0o600)
		}
		if name == "rsa" {
			if printed, err := run(dir, "openssl genpkey -algorithm RSA -out rsa"); err != nil {
				t.Fatalf("%v\n%s", err, printed)
			}
		}
		if _, err := signingKey(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProvenance makes sure that the statement names the commit, and has no time: it would differ from build to build.
func TestProvenance(t *testing.T) {
	t.Setenv("SIGNING_KEY", newKey(t))
	r := signed(t)
	r.Modified = true
	text, err := describe(r)
	if err != nil {
		t.Fatal(err)
	}
	var statement struct {
		Subject   []struct{ Name string }
		Predicate struct {
			BuildDefinition struct {
				ExternalParameters   struct{ Commit, Command, Modified string }
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	if err := json.Unmarshal(text, &statement); err != nil {
		t.Fatal(err)
	}
	built := statement.Predicate.BuildDefinition
	if built.ExternalParameters.Commit != r.Commit || built.ExternalParameters.Command != "make release ARCHES='amd64'" ||
		built.ExternalParameters.Modified == "" || built.ResolvedDependencies[0].Digest["gitCommit"] != r.Commit {
		t.Errorf("%s", text)
	}
}
