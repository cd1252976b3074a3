package tuning

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/results"
)

// GC removes the files for DEL that nobody will ask for. Those of the reference plugin don't say the network: of a container that
// libcni still has a result of, on any network, they are left, and all of them where libcni's results are not known.
func (Plugin) GC(ctx context.Context, r *plugin.Request) error {
	dir := dataDir(r.Config)
	stems, err := backupStems(dir)
	if err != nil || len(stems) == 0 {
		return err
	}
	known, err := results.Open(r.Results, plugin.Key{})
	if err != nil {
		return err
	}
	for _, a := range r.Valid {
		delete(stems, backupStem(a.ContainerID, a.IfName))
	}
	var errs []error
	for stem := range stems {
		file := pathOf(dir, stem)
		network, ok := file.owner()
		if network == "" {
			ok = ok && known != nil && !known.Has(results.Containers(stem, "_")...)
		}
		if !ok || network != "" && network != r.Network {
			continue
		}
		if err := r.Step(ctx, "remove "+string(file)); err != nil {
			return err
		}
		errs = append(errs, file.remove())
	}
	return errors.Join(errs...)
}

// owner returns the network that the file, or the one that is written first, is from: "" if it does not say.
func (p backupPath) owner() (network string, isBackup bool) {
	text, err := os.ReadFile(string(p))
	if isNoFile(err) {
		text, err = os.ReadFile(p.temporary())
	}
	b, isBackup := parseBackup(text)
	return b.network, err == nil && isBackup
}

// backupStems returns the names, without endings, of the files in dir that can be backups.
func backupStems(dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	if isNoFile(err) {
		return nil, nil
	}
	stems := map[string]bool{}
	for _, e := range entries {
		stem, ok := strings.CutSuffix(strings.TrimSuffix(e.Name(), temporarySuffix), suffix)
		if ok && e.Type().IsRegular() && len(results.Containers(stem, "_")) > 0 {
			stems[stem] = true
		}
	}
	return stems, err
}
