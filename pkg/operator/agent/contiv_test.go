package agent

import (
	"context"
	"net/http"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// heldCalls is an API of which nothing but holding attachments is asked.
type heldCalls map[plugin.Key]bool

func (heldCalls) ServeHTTP(http.ResponseWriter, *http.Request) {}
func (heldCalls) Replay(context.Context)                       {}

func (h heldCalls) TryLock(k plugin.Key) bool {
	isFree := !h[k]
	h[k] = true
	return isFree
}

func (h heldCalls) Release(k plugin.Key) { delete(h, k) }

// TestFree: the collection leaves a container alone as long as a call of contiv's API for it is under way, and frees others, and those of other
// networks, meanwhile.
func TestFree(t *testing.T) {
	server := heldCalls{}
	a := &Agent{Options: Options{Network: "pods"}, api: &contivAPI{server: server}}
	isFreed := func(network, id string) bool {
		it := &collect.Item{Network: network, ContainerID: id, IfName: "eth0", Outcome: collect.Removed} // so that nothing is called
		return a.free(t.Context(), &collect.Report{}, it, collect.Options{})
	}
	call := plugin.Key{Network: "pods", ContainerID: "web", IfName: "eth0"}
	if !server.TryLock(call) {
		t.Fatal("a call can't begin")
	}
	if isFreed("pods", "web") || !isFreed("pods", "db") || !isFreed("other", "web") {
		t.Error("the call for one container decides about another, or not about its own")
	}
	server.Release(call)
	if !isFreed("pods", "web") {
		t.Error("it is left alone though its call has ended")
	}
	if !server.TryLock(call) {
		t.Error("the collection has kept it")
	}
}
