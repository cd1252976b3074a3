// Package containers asks the container runtimes of this node which containers they run. Their answers only add to what is known to be in
// use: a runtime that is not there, does not answer, or does not know a container says nothing about it.
package containers

import (
	"context"
	"os"
	"slices"
	"time"
)

// Runtime is a runtime that can be asked over a socket.
type Runtime struct {
	Name   string
	Socket string
	ask    func(ctx context.Context, socket string) ([]Container, error)
}

// CRI returns a runtime that speaks Kubernetes' Container Runtime Interface, as the kubelet's do.
func CRI(name, socket string) Runtime { return Runtime{name, socket, askCRI} }

// Podman returns a podman whose service listens.
func Podman(socket string) Runtime { return Runtime{"podman", socket, askPodman} }

// Runtimes are those of a node where they listen by default.
var Runtimes = []Runtime{
	CRI("containerd", "/run/containerd/containerd.sock"),
	CRI("k3s or RKE2", "/run/k3s/containerd/containerd.sock"),
	CRI("k0s", "/run/k0s/containerd.sock"),
	CRI("MicroK8s", "/var/snap/microk8s/common/run/containerd.sock"),
	CRI("cri-dockerd", "/run/cri-dockerd.sock"),
	CRI("CRI-O", "/run/crio/crio.sock"),
	Podman("/run/podman/podman.sock"),
}

// Container is a container that runs, or a pod with its network.
type Container struct {
	ID   string `json:"id"` // that CNI knows it by
	Name string `json:"name"`
}

// Answer is what a runtime has said.
type Answer struct {
	Runtime    string      `json:"runtime"`
	Socket     string      `json:"socket"`
	Containers []Container `json:"containers"`
	Error      string      `json:"error,omitempty"` // why it has said nothing
}

// Runs reports whether the runtime has said that it runs a container.
func (a Answer) Runs(id string) bool {
	return slices.ContainsFunc(a.Containers, func(c Container) bool { return c.ID == id })
}

// patience is how long a runtime may take to answer.
const patience = 3 * time.Second

// Ask asks the runtimes whose socket is there, one after the other.
func Ask(ctx context.Context, all []Runtime) []Answer {
	answers := []Answer{}
	for _, r := range all {
		file, err := os.Stat(r.Socket)
		if err != nil || file.Mode()&os.ModeSocket == 0 {
			continue
		}
		a := Answer{Runtime: r.Name, Socket: r.Socket, Containers: []Container{}}
		ctx, cancel := context.WithTimeout(ctx, patience)
		list, err := r.ask(ctx, r.Socket)
		cancel()
		if err != nil {
			a.Error = err.Error()
		} else {
			a.Containers = append(a.Containers, list...)
		}
		answers = append(answers, a)
	}
	return answers
}
