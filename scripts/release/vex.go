package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/vuln/scan"
)

// vex writes which known vulnerabilities of what is linked concern us, as govulncheck finds by what we call. It needs a list of them.
func vex(r Release) error {
	db := os.Getenv("VULNDB")
	if db == "" {
		fmt.Println("no VEX: there is no list of vulnerabilities. VULNDB=file:///DIRECTORY or VULNDB=https://SERVER names one, in the form of Go's vulnerability database")
		return nil
	}
	var found bytes.Buffer
	check := scan.Command(context.Background(), "-C", r.Source, "-db", db, "-format", "openvex", "./cmd/...")
	check.Stdout, check.Stderr = &found, os.Stderr
	if err := check.Start(); err != nil {
		return err
	}
	if err := check.Wait(); err != nil {
		return err
	}
	text, err := nameProduct(r, found.Bytes())
	if err != nil {
		return err
	}
	return os.WriteFile(r.artefact("cnibox-"+r.Version+".openvex.json"), text, 0o644)
}

// nameProduct writes into a document what govulncheck can't know, and the time of the release.
func nameProduct(r Release, text []byte) ([]byte, error) {
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	doc["author"], doc["timestamp"] = "cnibox", r.Time.Format(time.RFC3339)
	statements, _ := doc["statements"].([]any)
	for _, s := range statements {
		statement, _ := s.(map[string]any)
		products, _ := statement["products"].([]any)
		for _, p := range products {
			if product, ok := p.(map[string]any); ok {
				product["@id"] = "pkg:golang/github.com/cnibox/cnibox@" + r.Version
			}
		}
	}
	if statements == nil { // the form wants a list
		doc["statements"] = []any{}
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	return append(text, '\n'), err
}
