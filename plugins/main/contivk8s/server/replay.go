package server

import (
	"context"
	"time"

	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

// Most of the time that the start of an agent spends on deletions. The next call of contivk8s sees to the rest.
const replayLimit = time.Minute

// Replay carries out deletions that contivk8s has queued for the server's socket while nobody answered there.
func (s *Server) Replay(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, replayLimit)
	defer cancel()
	if list, err := contiv.Deletions(); len(list) == 0 && err == nil { // which is nearly always so
		return
	}
	lock, err := contiv.LockDeletions(ctx, replayLimit)
	if err != nil {
		s.Log.Warn("deletions that were queued are left to the next call of contivk8s", "error", err)
		return
	}
	defer lock.Release()
	list, err := contiv.Deletions()
	if err != nil {
		s.Log.Warn("not all deletions that were queued can be read", "error", err)
	}
	for _, r := range list {
		if r.Socket != s.Socket || r.ContainerID == "" || ctx.Err() != nil {
			continue
		}
		log := s.Log.With("container", r.ContainerID, "interface", r.IfName, "pod", r.PodName(), "queued", r.Since)
		if r.IsSuperseded() {
			log.Info("a deletion that was queued is dropped: the container was attached again since")
		} else if err := s.detach(ctx, r.Request(), nil); err != nil {
			log.Warn("a deletion that was queued failed, and stays queued", "error", err)
			continue
		} else {
			log.Info("detached, as was queued")
		}
		if err := contiv.RemoveDeletion(r.Key); err != nil {
			log.Warn("the deletion stays queued, and is repeated", "error", err)
		}
	}
}
