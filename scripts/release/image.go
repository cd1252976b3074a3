package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageName is what runtimes call the image. Behind it comes the version.
const imageName = "docker.io/cnibox/cnibox"

// image makes one file of the image for all architectures, and what has Kubernetes run that very image, by its digest, on each node. The
// file is an OCI layout: containerd and podman import it, and crane and skopeo push it to a registry.
func image(r Release) error {
	dir, err := os.MkdirTemp("", "cnibox-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	index := mutate.Annotations(empty.Index, labels(r)).(v1.ImageIndex)
	for _, arch := range r.Arches {
		made, err := imageFor(r, arch)
		if err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: made, Descriptor: v1.Descriptor{Platform: platform(arch)}})
	}
	written, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := written.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          imageName + ":" + r.Version,
		"org.opencontainers.image.ref.name": r.Version,
	})); err != nil {
		return err
	}
	list, err := files(dir, ".")
	if err != nil {
		return err
	}
	for i := range list {
		list[i].mode = 0o644
	}
	digest, errDigest := index.Digest()
	manifest, errManifest := os.ReadFile(filepath.Join(r.Source, "dist/kubernetes/cnibox.yaml"))
	file, errFile := os.Create(r.artefact("cnibox-image-" + r.Version + ".tar"))
	if err := cmp.Or(errDigest, errManifest, errFile); err != nil {
		return err
	}
	tagged := []byte(":" + r.Version + "\n")
	manifest = bytes.ReplaceAll(manifest, tagged, []byte(":"+r.Version+"@"+digest.String()+"\n"))
	return errors.Join(writeTar(file, list, r), file.Close(),
		os.WriteFile(r.artefact("cnibox-kubernetes-"+r.Version+".yaml"), manifest, 0o644))
}

// platform names an architecture as images do.
func platform(arch string) *v1.Platform {
	p := &v1.Platform{OS: "linux", Architecture: arch}
	if arch == "arm" {
		p.Variant = "v7" // what Go builds for
	}
	return p
}

// labels say what an image is, under the names that all tools read.
func labels(r Release) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":         "cnibox",
		"org.opencontainers.image.description":   "Installs the CNI plugins of cnibox on a node, and runs cnictl",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.source":        repository,
		"org.opencontainers.image.documentation": repository + "/blob/main/docs/install/kubernetes.md",
		"org.opencontainers.image.version":       r.Version,
		"org.opencontainers.image.revision":      r.Commit,
	}
}

// imageFor makes the image for an architecture: the programs, the licences of what is linked, and nothing else. /var/run is where
// runtimes may say that a namespace is.
func imageFor(r Release, arch string) (v1.Image, error) {
	built, errBuilt := files(filepath.Join(r.Tree, "linux-"+arch), programs...)
	about, errAbout := files(filepath.Join(r.Tree, "share/doc"), "LICENSE", noticesFile)
	if err := cmp.Or(errBuilt, errAbout); err != nil {
		return nil, err
	}
	list := []entry{{name: "var/run", mode: 0o777, link: "/run"}}
	for _, e := range built {
		list = append(list, entry{name: "usr/bin/" + e.name, mode: e.mode, content: e.content})
	}
	for _, e := range about {
		list = append(list, entry{name: "usr/share/doc/cnibox/" + e.name, mode: e.mode, content: e.content})
	}
	var root bytes.Buffer
	if err := writeTar(&root, list, r); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(root.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	made, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	config, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	p := platform(arch)
	config.OS, config.Architecture, config.Variant, config.Created = p.OS, p.Architecture, p.Variant, v1.Time{Time: r.Time}
	config.History = []v1.History{{Created: config.Created, CreatedBy: "make release"}}
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/cnictl"}, Cmd: []string{"install", "--dir", "/opt/cni/bin"},
		Env: []string{"PATH=/usr/bin"}, Labels: labels(r),
	}
	return mutate.ConfigFile(made, config)
}

// writeTar writes an archive that is not compressed.
func writeTar(w io.Writer, list []entry, r Release) error {
	archive := tar.NewWriter(w)
	return errors.Join(writeEntries(archive, ".", list, r.Time), archive.Close())
}
