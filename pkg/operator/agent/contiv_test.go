package agent

import (
	"log/slog"
	"testing"

	"github.com/cnibox/cnibox/pkg/operator/agent/contiv"
	"github.com/cnibox/cnibox/pkg/operator/collect"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// TestFree: the collection leaves a container alone as long as a call of contiv's API for it is under way, and frees others, and those of other
// networks, meanwhile.
func TestFree(t *testing.T) {
	server, err := contiv.New(contiv.Options{Network: "pods", ConfDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{Options: Options{Network: "pods"}, api: &contivAPI{server: server}}
	isFreed := func(network, id string) bool {
		it := &collect.Item{Network: network, ContainerID: id, IfName: "eth0", Outcome: collect.Removed} // so that nothing is called
		return a.free(t.Context(), &collect.Report{}, it, collect.Options{})
	}
	call := plugin.Key{Network: "pods", ContainerID: "web", IfName: "eth0"}
	if !server.Hold(call) {
		t.Fatal("a call can't begin")
	}
	if isFreed("pods", "web") || !isFreed("pods", "db") || !isFreed("other", "web") {
		t.Error("the call for one container decides about another, or not about its own")
	}
	server.Release(call)
	if !isFreed("pods", "web") {
		t.Error("it is left alone though its call has ended")
	}
	if !server.Hold(call) {
		t.Error("the collection has kept it")
	}
}
