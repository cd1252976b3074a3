package main

import (
	"archive/tar"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/cmd/crane/cmd"
	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/cnibox/cnibox/pkg/process/box"
)

// TestImage has crane push the image to a registry, and looks at what is there for each architecture.
func TestImage(t *testing.T) {
	dir := unpack(t, artefacts(t, "cnibox-image-*.tar")[0], `tar xf "$file"`)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://") + "/cnibox:latest"
	push := cmd.NewCmdPush(&[]crane.Option{})
	push.SetArgs([]string{dir, at})
	push.SetOut(io.Discard)
	if err := push.Execute(); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(at)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var arches []string
	for _, m := range manifest.Manifests {
		arches = append(arches, m.Platform.Architecture)
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, m.Platform, image)
	}
	var built []string
	for _, path := range artefacts(t, "tree/linux-*") {
		built = append(built, strings.TrimPrefix(filepath.Base(path), "linux-"))
	}
	slices.Sort(arches)
	if !slices.Equal(arches, built) {
		t.Errorf("the image is for %s, and built was for %s", arches, built)
	}
}

// checkImage compares an image's programs with those that were built, and makes sure that nothing in it depends on when and where it was made.
func checkImage(t *testing.T, platform *v1.Platform, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("the image for %s has %d layers: %v", platform, len(layers), err)
	}
	if !config.Platform().Equals(*platform) || config.Config.Labels["org.opencontainers.image.version"] != "v"+box.Version {
		t.Errorf("the image for %s is for %s, with %v", platform, config.Platform(), config.Config.Labels)
	}
	root, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var names []string
	for archive := tar.NewReader(root); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 && h.Typeflag != tar.TypeSymlink || !h.ModTime.Equal(config.Created.Time) {
			t.Errorf("%s: %s is of %d and %d, %o, %s", platform, h.Name, h.Uid, h.Gid, h.Mode, h.ModTime)
		}
		if h.Typeflag != tar.TypeDir {
			names = append(names, h.Name)
		}
		if h.Typeflag == tar.TypeReg && strings.HasPrefix(h.Name, "./usr/bin/") {
			is, errIs := io.ReadAll(archive)
			want, errWant := os.ReadFile(filepath.Join(made, "tree/linux-"+platform.Architecture, filepath.Base(h.Name)))
			if errIs != nil || errWant != nil || string(is) != string(want) {
				t.Errorf("%s: %s is not what was built: %v %v", platform, h.Name, errIs, errWant)
			}
		}
	}
	if want := []string{"./var/run", "./usr/bin/cnibox", "./usr/bin/cnibox-etcd", "./usr/bin/cnictl", "./usr/share/doc/cnibox/LICENSE", "./usr/share/doc/cnibox/" + noticesFile}; !slices.Equal(names, want) {
		t.Errorf("%s has %s, want %s", platform, names, want)
	}
}

// TestDaemonSet reads what Kubernetes is given as Kubernetes would, but refuses what it does not know, a mount of a volume that is not there, and an
// image that is not the release's by its digest.
func TestDaemonSet(t *testing.T) {
	text, err := os.ReadFile(artefacts(t, "cnibox-kubernetes-*.yaml")[0])
	if err != nil {
		t.Fatal(err)
	}
	var set apps.DaemonSet
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template
	for key, value := range set.Spec.Selector.MatchLabels {
		if pod.Labels[key] != value {
			t.Errorf("the selector's label %s is not the pod's", key)
		}
	}
	if len(set.Spec.Selector.MatchLabels) == 0 || set.APIVersion != "apps/v1" || set.Kind != "DaemonSet" {
		t.Errorf("it is %s %s, with the selector %v", set.APIVersion, set.Kind, set.Spec.Selector)
	}
	index, err := layout.ImageIndexFromPath(unpack(t, artefacts(t, "cnibox-image-*.tar")[0], `tar xf "$file"`))
	if err != nil {
		t.Fatal(err)
	}
	images, err := index.IndexManifest()
	if err != nil || len(images.Manifests) != 1 {
		t.Fatalf("the file of the image has %v: %v", images, err)
	}
	image := strings.TrimPrefix(imageName, "docker.io/") + ":v" + box.Version + "@" + images.Manifests[0].Digest.String()
	install := pod.Spec.InitContainers[0].SecurityContext.Capabilities
	if !slices.Equal(install.Drop, []core.Capability{"ALL"}) || !slices.Equal(install.Add, []core.Capability{"DAC_OVERRIDE"}) {
		t.Errorf("the installation may do %v, without %v", install.Add, install.Drop)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Image != image {
			t.Errorf("%s is of %s, want %s", c.Name, c.Image, image)
		}
		if readOnly := c.SecurityContext.ReadOnlyRootFilesystem; readOnly == nil || !*readOnly {
			t.Errorf("%s can write to its root", c.Name)
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(pod.Spec.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("%s mounts %s, which is no volume", c.Name, m.Name)
			}
		}
	}
}
