package runtimes

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// What gocni reads and answers.
type (
	goCNIRequest struct {
		Call       string
		Networks   int              `json:",omitempty"`
		Containers []goCNIContainer `json:",omitempty"`
	}
	goCNIContainer struct {
		ID, Netns    string
		Ports        []portMapping     `json:",omitempty"`
		Capabilities map[string]any    `json:",omitempty"`
		Args         map[string]string `json:",omitempty"`
	}
	portMapping struct {
		HostPort, ContainerPort int
		Protocol, HostIP        string
	}
	goCNIAnswer struct {
		Error      string
		Interfaces map[string]goCNIInterface
	}
	goCNIInterface struct {
		Mac       string
		IPConfigs []struct{ IP netip.Addr }
	}
)

// goCNIRuntime is a process that calls go-cni on a node, as a runtime's daemon does.
type goCNIRuntime struct {
	*node
	in  io.WriteCloser
	out *json.Decoder
}

// attachedContainer is a container with what go-cni was asked for it, and has answered.
type attachedContainer struct {
	container
	asked      goCNIContainer
	interfaces map[string]goCNIInterface
	pod        *netlab.Pod
	end        func(t *testing.T)
}

func newGoCNI(t *testing.T) *goCNIRuntime {
	t.Helper()
	g := &goCNIRuntime{node: newNode(t)}
	g.writeFile(t, conflistFile, goCNINetwork)
	g.writeFile(t, workDir+"/www/index.html", pageBody)
	process := exec.Command(filepath.Join(netlab.Module(t, "test/runtimes/gocni", "."), "gocni"))
	var log strings.Builder
	process.Stderr = &log
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(process); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := process.Wait(); err != nil || log.Len() > 0 {
			t.Errorf("gocni has ended with %v: %s", err, log.String())
		}
	})
	g.in, g.out = in, json.NewDecoder(out)
	g.call(t, "load 1")
	return g
}

// ask has gocni answer a request.
func (g *goCNIRuntime) ask(t *testing.T, request goCNIRequest) (answers []goCNIAnswer) {
	t.Helper()
	if err := json.NewEncoder(g.in).Encode(request); err != nil {
		t.Fatal(err)
	}
	if err := g.out.Decode(&answers); err != nil {
		t.Fatal(err)
	}
	return answers
}

// call makes a call, such as "load 1", that has to come off for all containers.
func (g *goCNIRuntime) call(t *testing.T, call string, containers ...goCNIContainer) []goCNIAnswer {
	t.Helper()
	request := goCNIRequest{Containers: containers}
	_, _ = fmt.Sscan(call, &request.Call, &request.Networks) // most have no number
	answers := g.ask(t, request)
	for i, answer := range answers {
		if answer.Error != "" {
			t.Fatalf("%s, answer %d: %s", call, i, answer.Error)
		}
	}
	return answers
}

func (g *goCNIRuntime) start(t *testing.T, name string, c goCNIContainer) attachedContainer {
	t.Helper()
	c.ID = name
	return g.startAll(t, name, []goCNIContainer{c})[0]
}

// startAll attaches containers at once, and has each serve the page.
func (g *goCNIRuntime) startAll(t *testing.T, name string, containers []goCNIContainer) (started []attachedContainer) {
	t.Helper()
	pods := make([]*netlab.Pod, len(containers))
	for i := range containers {
		pods[i] = g.NewPod(t, fmt.Sprint(name, "-", i))
		containers[i].ID, containers[i].Netns = pods[i].ID, pods[i].Path()
	}
	for i, answer := range g.call(t, "setup", containers...) {
		pod, asked := pods[i], containers[i]
		server := exec.Command(busybox, "httpd", "-f", "-p", "80", "-h", workDir+"/www")
		if err := pod.Start(server); err != nil {
			t.Fatal(err)
		}
		c := attachedContainer{asked: asked, interfaces: answer.Interfaces, pod: pod, end: func(t *testing.T) {
			t.Helper()
			_ = server.Process.Kill()
			_ = server.Wait()
			pod.Delete(t)
		}}
		c.container = container{
			id:      asked.ID,
			address: answer.Interfaces["eth0"].IPConfigs[0].IP.String(),
			exec: func(t *testing.T, commandLine string) string {
				return strings.TrimSpace(pod.MustRun(t, busybox, "sh", "-c", commandLine))
			},
			remove: func(t *testing.T) { g.removeAll(t, []attachedContainer{c}) },
		}
		started = append(started, c)
	}
	for _, c := range started {
		g.awaitPage(t, c.address)
	}
	return started
}

// removeAll ends containers at once.
func (g *goCNIRuntime) removeAll(t *testing.T, containers []attachedContainer) {
	t.Helper()
	asked := make([]goCNIContainer, len(containers))
	for i, c := range containers {
		asked[i] = c.asked
	}
	g.call(t, "remove", asked...)
	for _, c := range containers {
		if got := g.calls(t, c.id); got != "ADD DEL" {
			t.Errorf("go-cni called %s, want ADD DEL", got)
		}
		c.end(t)
	}
}

// leaves makes sure that nothing is left on the node but what the network keeps.
func (g *goCNIRuntime) leaves(t *testing.T, fresh *netlab.Snapshot, network ...string) {
	t.Helper()
	if diff := fresh.Diff(g.Snapshot(t), slices.Concat(ofNetwork, goCNIOfNetwork, network)...); diff != "" {
		t.Errorf("left:\n%s", diff)
	}
}
