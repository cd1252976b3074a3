package runtimes

import (
	"encoding/json"
	"os"
	"testing"
)

// TestCRI runs pods through containerd's CRI, as a kubelet does, with a published port.
func TestCRI(t *testing.T) {
	tried(t, criOld, onePod)
	n := newNode(t)
	n.startContainerd(t, criNamespace)
	n.testLifecycle(t, n.criPod, func(t *testing.T, _ container) { n.checkPublished(t, "8080") })
	n.checkUnpublished(t, "8080")
}

// criNamespace is where containerd's CRI keeps its containers.
const criNamespace = "k8s.io"

func (n *node) criPod(t *testing.T, name string) container { return n.criPodAt(t, name, 8080) }

// criPodAt starts a pod whose page is published on a port.
func (n *node) criPodAt(t *testing.T, name string, port int) container {
	t.Helper()
	type object = map[string]any
	pod := n.writeJSON(t, workDir+"/pod.json", object{
		"metadata":      object{"name": name, "uid": name, "namespace": "default"},
		"hostname":      name,
		"log_directory": workDir + "/logs",
		"port_mappings": []object{{"container_port": 80, "host_port": port}},
		"linux":         object{"cgroup_parent": cgroup()},
	})
	web := n.writeJSON(t, workDir+"/container.json", object{
		"metadata": object{"name": "web"},
		"image":    object{"image": imageName},
		"command":  serveCommand,
		"log_path": "web.log",
		"linux":    object{},
	})
	var started struct{ ID, Address, Container string }
	out := n.criclient(t, "run", pod, web)
	if err := json.Unmarshal([]byte(out), &started); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return container{
		id:      started.ID,
		address: started.Address,
		exec: func(t *testing.T, commandLine string) string {
			args := ctrExec(started.Container, commandLine)
			return n.run(t, "ctr", append([]string{"--namespace", criNamespace}, args...)...)
		},
		remove: func(t *testing.T) {
			n.criclient(t, "remove", started.ID)
			if got, want := n.calls(t, started.ID), "ADD DEL"; got != want {
				t.Errorf("the CRI called %s, want %s", got, want)
			}
		},
	}
}

func (n *node) criclient(t *testing.T, args ...string) string {
	t.Helper()
	return n.run(t, os.Getenv(criclientEnv), append([]string{containerdSocket}, args...)...)
}
