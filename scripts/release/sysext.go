package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
)

// systemdArches are systemd's names of architectures where they are not Go's.
var systemdArches = map[string]string{"amd64": "x86-64", "ppc64le": "ppc64-le", "mips64le": "mips64-le"}

// sysext makes for each architecture an image that systemd-sysext lays over /usr. Its name there has to be cnibox.raw.
func sysext(r Release) error {
	for _, arch := range r.Arches {
		list, err := system(r, arch, ofAny)
		if err != nil {
			return err
		}
		named := arch
		if name := systemdArches[arch]; name != "" {
			named = name
		}
		list = append(list, entry{name: "usr/lib/extension-release.d/extension-release.cnibox", mode: 0o644,
			content: fmt.Appendf(nil, "ID=_any\nARCHITECTURE=%s\nEXTENSION_RELOAD_MANAGER=1\n", named)})
		path := r.artefact(fmt.Sprintf("cnibox-sysext-linux-%s-%s.raw", arch, r.Version))
		if err := writeImage(path, list, r); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// writeImage writes entries into a squashfs. Its times are those of SOURCE_DATE_EPOCH.
func writeImage(path string, list []entry, r Release) error {
	cmd := exec.Command("sqfstar", "-comp", "gzip", "-quiet", "-no-progress", "-root-mode", "0755", path)
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w; sqfstar is of Debian's package squashfs-tools", err)
	}
	archive := tar.NewWriter(in)
	// Links come last: what they lead to is there then.
	slices.SortStableFunc(list, func(a, b entry) int { return len(a.link) - len(b.link) })
	err = writeEntries(archive, ".", list, r.Time)
	if err = errors.Join(err, archive.Close(), in.Close(), cmd.Wait()); err != nil {
		return fmt.Errorf("%w\n%s", err, said.String())
	}
	return nil
}
