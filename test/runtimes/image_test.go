package runtimes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// The image every container is made from: busybox and a page for its web server. It serves as the pause container of a
// pod too, since its own command only sleeps.
const (
	imageName = "docker.io/cnibox/web:1"
	pageBody  = "hello from the container\n"

	// busybox is the one that is linked statically: an image has no libraries.
	busybox = "/bin/busybox"
)

// serveCommand serves the page on port 80.
var serveCommand = []string{"httpd", "-f", "-p", "80", "-h", "/www"}

// writeImage writes the image as a docker archive, which containerd and podman read.
func writeImage(path string) error {
	layer, err := imageLayer()
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"sleep", "86400"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{
		{"Config": "config.json", "RepoTags": []string{imageName}, "Layers": []string{"layer.tar"}},
	})
	if err != nil {
		return err
	}
	archive, err := tarball(
		file("manifest.json", manifest), file("config.json", config), file("layer.tar", layer))
	if err != nil {
		return err
	}
	return os.WriteFile(path, archive, 0o644)
}

// imageLayer is the container's root directory.
func imageLayer() ([]byte, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list the applets of %s: %w", busybox, err)
	}
	entries := []entry{
		directory("bin"), directory("dev"), directory("etc"), directory("proc"),
		directory("sys"), directory("tmp"), directory("www"),
		file("bin/busybox", program),
		file("etc/passwd", []byte("root:x:0:0:root:/:/bin/sh\n")),
		file("etc/group", []byte("root:x:0:\n")),
		file("www/index.html", []byte(pageBody)),
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			entries = append(entries, symlink("bin/"+applet, "busybox"))
		}
	}
	return tarball(entries...)
}

// entry is one member of a tar archive.
type entry struct {
	header  tar.Header
	content []byte
}

func file(name string, content []byte) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}, content}
}

func directory(name string) entry {
	return entry{tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}, nil}
}

func symlink(name, target string) entry {
	return entry{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil}
}

func tarball(entries ...entry) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, e := range entries {
		if err := w.WriteHeader(&e.header); err != nil {
			return nil, err
		}
		if _, err := io.Copy(w, bytes.NewReader(e.content)); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return archive.Bytes(), err
}
