package runtimes

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// TestCRI runs pods through containerd's CRI, as a kubelet does.
func TestCRI(t *testing.T) {
	for _, c := range containerds {
		t.Run(c.name, func(t *testing.T) {
			c.programs(t) // before the time is taken
			for _, tt := range []struct {
				scenario string
				test     func(t *testing.T, c containerd)
			}{
				{onePod, testCRIPod},
				{publishedPort, testCRIPorts},
				{twoNetworks, testCRITwoNetworks},
				{dualStack, testCRIDualStack},
				{fifty, testCRIFifty},
				{runtimeKilled, testCRIKilled},
				{reboot, testCRIReboot},
				{edited, testCRIEdited},
				{asksStatus, testCRIStatus},
			} {
				if tt.scenario == asksStatus && c.network != "1.1.0" {
					continue
				}
				t.Run(tt.scenario, func(t *testing.T) {
					tried(t, c.criColumn, tt.scenario)
					tt.test(t, c)
				})
			}
		})
	}
}

func testCRIPod(t *testing.T, c containerd) {
	d := newDaemon(t, c, criNamespace)
	d.testLifecycle(t, d.criPod, func(t *testing.T, _ container) { d.checkPublished(t, "8080") })
	d.checkUnpublished(t, "8080")
}

// criNamespace is where containerd's CRI keeps its containers.
const criNamespace = "k8s.io"

// hostPort is a port of the node, on one of its addresses or on all, at which the page of a pod is published.
type hostPort struct {
	port    int
	address string
}

// startPod starts a pod that serves the page. It may be called from any goroutine.
func (d *daemon) startPod(name string, published ...hostPort) (container, error) {
	type object = map[string]any
	ports := []object{}
	for _, p := range published {
		ports = append(ports, object{"container_port": 80, "host_port": p.port, "host_ip": p.address})
	}
	sandbox, err := json.Marshal(object{
		"metadata":      object{"name": name, "uid": name, "namespace": "default"},
		"hostname":      name,
		"log_directory": workDir + "/logs",
		"port_mappings": ports,
		"linux":         object{"cgroup_parent": cgroup()},
	})
	if err != nil {
		return container{}, err
	}
	web, err := json.Marshal(object{
		"metadata": object{"name": "web"},
		"image":    object{"image": imageName},
		"command":  serveCommand,
		"log_path": "web.log",
		"linux":    object{},
	})
	if err != nil {
		return container{}, err
	}
	out, err := d.criclient("run", string(sandbox), string(web))
	if err != nil {
		return container{}, err
	}
	var started struct {
		ID, Container string
		Addresses     []string
	}
	if err := json.Unmarshal([]byte(out), &started); err != nil {
		return container{}, fmt.Errorf("%w: %s", err, out)
	}
	return container{
		id:       started.ID,
		address:  started.Addresses[0],
		address6: strings.Join(started.Addresses[1:], " "),
		exec: func(t *testing.T, commandLine string) string {
			return d.ctrShell(t, criNamespace, started.Container, commandLine)
		},
		remove: func(t *testing.T) {
			d.cri(t, "remove", started.ID)
			if got, want := d.calls(t, started.ID), "ADD DEL"; got != want {
				t.Errorf("the CRI called %s, want %s", got, want)
			}
		},
	}, nil
}

// criPod starts a pod whose page is published on port 8080.
func (d *daemon) criPod(t *testing.T, name string) container { return d.criPodAt(t, name, 8080) }

// criPodAt starts a pod whose page is published on a port.
func (d *daemon) criPodAt(t *testing.T, name string, port int) container {
	t.Helper()
	return d.criPodPorts(t, name, hostPort{port: port})
}

// criPodPorts starts a pod, and waits for its page.
func (d *daemon) criPodPorts(t *testing.T, name string, ports ...hostPort) container {
	t.Helper()
	c, err := d.startPod(name, ports...)
	if err != nil {
		t.Fatal(err)
	}
	d.awaitPage(t, c.address)
	return c
}

// criclient calls the CRI.
func (d *daemon) criclient(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), netlab.Patience)
	defer cancel()
	out, err := d.Output(exec.CommandContext(ctx, os.Getenv(criclientEnv), append([]string{containerdSocket}, args...)...))
	return strings.TrimSpace(out), err
}

func (d *daemon) cri(t *testing.T, args ...string) string {
	t.Helper()
	out, err := d.criclient(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
