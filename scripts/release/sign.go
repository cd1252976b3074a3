package main

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// sums writes the checksums of all artefacts, and with a key its signature and the public key.
func sums(r Release) error {
	list, err := checksums(r)
	if err != nil {
		return err
	}
	var text []byte
	for _, name := range slices.Sorted(maps.Keys(list)) {
		text = fmt.Appendf(text, "%s  %s\n", list[name], name)
	}
	key, errKey := signingKey()
	err = os.WriteFile(filepath.Join(r.Out, "SHA256SUMS"), text, 0o644)
	if err := cmp.Or(err, errKey); err != nil {
		return err
	}
	if key == nil {
		fmt.Println("not signed, and no provenance: SIGNING_KEY=FILE names the private key (openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256)")
		return nil
	}
	signature, errSign := key.Sign(context.Background(), text)
	public, errPublic := x509.MarshalPKIXPublicKey(key.private.Public())
	return cmp.Or(errSign, errPublic,
		os.WriteFile(filepath.Join(r.Out, "SHA256SUMS.sig"), []byte(base64.StdEncoding.EncodeToString(signature)+"\n"), 0o644),
		os.WriteFile(filepath.Join(r.Out, "cnibox.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644))
}

// onlyArtefacts refuses a file that is no artefact, nor the checksum of one: it would be published with them.
func onlyArtefacts(r Release) error {
	entries, err := os.ReadDir(r.Out)
	if err != nil {
		return err
	}
	for _, e := range entries {
		of := strings.TrimSuffix(strings.TrimSuffix(e.Name(), ".sha256"), ".sha512")
		if !e.IsDir() && !r.named[of] {
			return fmt.Errorf("%s is in %s, and no artefact: remove it", e.Name(), r.Out)
		}
	}
	return nil
}

// checksums are of the artefacts that were made, and of no other file.
func checksums(r Release) (map[string]string, error) {
	list := map[string]string{}
	for name := range r.named {
		content, err := os.ReadFile(filepath.Join(r.Out, name))
		if err != nil {
			return nil, err
		}
		list[name] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	return list, nil
}

// signer signs with ECDSA over P-256, which openssl and cosign verify. The same key makes the same signature each time (RFC 6979).
type signer struct{ private *ecdsa.PrivateKey }

func (s *signer) Sign(_ context.Context, data []byte) ([]byte, error) {
	digest := sha256.Sum256(data)
	return s.private.Sign(nil, digest[:], crypto.SHA256)
}

func (s *signer) KeyID() (string, error) { return dsse.SHA256KeyID(s.private.Public()) }

// signingKey reads the private key that SIGNING_KEY names. It is nil if none is named.
func signingKey() (*signer, error) {
	path := os.Getenv("SIGNING_KEY")
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("SIGNING_KEY: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("SIGNING_KEY: " + path + " is no PEM file")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("SIGNING_KEY: %s: %w", path, err)
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, errors.New("SIGNING_KEY: " + path + " has to be a key of the curve P-256: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256")
	}
	return &signer{private}, nil
}
