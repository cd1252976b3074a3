package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	predicateType = "https://slsa.dev/provenance/v1"
	payloadType   = "application/vnd.in-toto+json"
	buildType     = repository + "/blob/main/docs/project/releases.md"
	builder       = buildType + "#make-a-release"
)

// provenance says of which commit, and how, the artefacts were made that are there by now. With a key it is signed.
func provenance(r Release) error {
	key, err := signingKey()
	if err != nil || key == nil {
		return err // without a signature it would say nothing that SHA256SUMS does not
	}
	statement, err := describe(r)
	if err != nil {
		return err
	}
	signer, err := dsse.NewEnvelopeSigner(key)
	if err != nil {
		return err
	}
	envelope, err := signer.SignPayload(context.Background(), payloadType, statement)
	if err != nil {
		return err
	}
	text, err := json.Marshal(envelope)
	if err != nil {
		return err
	}
	return os.WriteFile(r.artefact("cnibox-"+r.Version+".intoto.jsonl"), append(text, '\n'), 0o644)
}

// describe returns the in-toto statement, with nothing in it that differs from build to build.
func describe(r Release) ([]byte, error) {
	sums, err := checksums(r)
	if err != nil {
		return nil, err
	}
	var subjects []*intoto.ResourceDescriptor
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		subjects = append(subjects, &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": sums[name]}})
	}
	source := map[string]any{"source": "git+" + repository, "commit": r.Commit, "command": "make release ARCHES='" + strings.Join(r.Arches, " ") + "'"}
	if r.Modified {
		source["modified"] = "the working directory had changes that are in no commit"
	}
	parameters, err := structpb.NewStruct(source)
	if err != nil {
		return nil, err
	}
	made := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType: buildType, ExternalParameters: parameters,
			ResolvedDependencies: []*intoto.ResourceDescriptor{
				{Uri: "git+" + repository + "@" + r.Version, Digest: map[string]string{"gitCommit": r.Commit}},
				{Uri: "pkg:golang/stdlib@" + strings.TrimPrefix(runtime.Version(), "go"), Name: "go"},
			},
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: builder}},
	}
	if err := made.Validate(); err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(made)
	if err != nil {
		return nil, err
	}
	predicate := &structpb.Struct{}
	if err := protojson.Unmarshal(text, predicate); err != nil {
		return nil, err
	}
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, Subject: subjects, PredicateType: predicateType, Predicate: predicate}
	if err := statement.Validate(); err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	if text, err = protojson.Marshal(statement); err != nil {
		return nil, err
	}
	var plain bytes.Buffer // protojson puts in blanks as it likes
	err = json.Compact(&plain, text)
	return plain.Bytes(), err
}
