package tuning

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/cnibox/cnibox/pkg/plugin"
)

// cacheDir is where libcni keeps a file for each attachment, called
// <network>-<container id>-<ifname>.
const cacheDir = "/var/lib/cni/results"

// GC removes the files for DEL that nobody will ask for. Their names do not
// tell the network, so that of a container that libcni's cache still has on any
// network all are left.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	dir := dataDir(r.Config)
	stems, err := backupStems(dir)
	if err != nil || len(stems) == 0 {
		return err
	}
	cached, err := readNames(cacheDir)
	if err != nil {
		return err
	}
	valid := map[string]bool{}
	for _, a := range r.Valid {
		valid[backupStem(a.ContainerID, a.IfName)] = true
	}
	var errs []error
	for _, stem := range stems {
		b := backup{filepath.Join(dir, stem+backupSuffix)}
		if valid[stem] || isCached(cached, stem) || !b.isOurs() {
			continue
		}
		if err := r.Step(ctx, "remove "+b.path); err != nil {
			return err
		}
		errs = append(errs, b.remove())
	}
	return errors.Join(errs...)
}

// backupStems returns what files in dir can be a backup's, without endings.
func backupStems(dir string) (stems []string, err error) {
	names, err := readNames(dir)
	for _, name := range names {
		stem, ok := strings.CutSuffix(name, temporarySuffix)
		if !ok {
			stem, ok = strings.CutSuffix(name, backupSuffix)
		}
		if ok && len(containers(stem)) > 0 {
			stems = append(stems, stem)
		}
	}
	return stems, err
}

// containers returns the container ids that a file with a stem can belong to:
// ids and names of interfaces may hold the underscore that is between them.
func containers(stem string) (ids []string) {
	for i := 1; i < len(stem)-1; i++ {
		if stem[i] == '_' {
			ids = append(ids, stem[:i])
		}
	}
	return ids
}

// isCached tells whether one of the containers is in a name of libcni's cache.
func isCached(cached []string, stem string) bool {
	for _, id := range containers(stem) {
		for _, name := range cached {
			if strings.Contains(name, "-"+id+"-") {
				return true
			}
		}
	}
	return false
}

// isOurs tells whether there is a backup in the file, or in the one it is
// written to first.
func (b backup) isOurs() bool {
	text, err := os.ReadFile(b.path)
	if isNoFile(err) {
		text, err = os.ReadFile(b.temporary())
	}
	return err == nil && isBackup(text)
}

// readNames returns the names of the files in a directory, none if there is no
// such directory.
func readNames(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if isNoFile(err) {
		return nil, nil
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, err
}
