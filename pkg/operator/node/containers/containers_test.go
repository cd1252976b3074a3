package containers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeCRI is a runtime with a pod in each state.
type fakeCRI struct {
	cri.UnimplementedRuntimeServiceServer
}

func (fakeCRI) ListPodSandbox(_ context.Context, r *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	answer := &cri.ListPodSandboxResponse{}
	for state, id := range map[cri.PodSandboxState]string{cri.PodSandboxState_SANDBOX_READY: "runs", cri.PodSandboxState_SANDBOX_NOTREADY: "ended"} {
		if r.GetFilter().GetState().GetState() == state {
			answer.Items = append(answer.Items, &cri.PodSandbox{Id: id, Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "shop"}})
		}
	}
	return answer, nil
}

func listen(t *testing.T, name string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func serveCRI(t *testing.T) (socket string) {
	t.Helper()
	l, server := listen(t, "cri.sock"), grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, fakeCRI{})
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return l.Addr().String()
}

func servePodman(t *testing.T, answer string) (socket string) {
	t.Helper()
	l := listen(t, "podman.sock")
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v4.0.0/libpod/containers/json" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, answer)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

func TestAsk(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	containers := `[{"Id": "a", "Names": ["one"], "State": "running"}, {"Id": "b", "Names": ["two"], "State": "exited"}, {"Id": "c", "State": "paused"}, {"Id": "d", "State": "configured"}]`
	answers := Ask(t.Context(), []Runtime{
		CRI("absent", "/run/none.sock"), CRI("no socket", plain), CRI("containerd", serveCRI(t)),
		Podman(servePodman(t, containers)), Podman(servePodman(t, "{")), CRI("deaf", closed(t)),
	})
	var got []string
	for _, a := range answers {
		text := a.Runtime
		for _, c := range a.Containers {
			text += " " + c.ID + "(" + c.Name + ")"
		}
		if a.Error != "" {
			text += " failed"
		}
		got = append(got, text)
	}
	want := "containerd runs(shop/web), podman a(one) c(), podman failed, deaf failed"
	if strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRuntimes has the sockets of the runtimes of Kubernetes' distributions.
func TestRuntimes(t *testing.T) {
	for _, socket := range []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock",
		"/var/snap/microk8s/common/run/containerd.sock", "/run/cri-dockerd.sock", "/run/podman/podman.sock"} {
		if !slices.ContainsFunc(Runtimes, func(r Runtime) bool { return r.Socket == socket }) {
			t.Errorf("nobody asks at %s", socket)
		}
	}
}

// closed returns the path of a socket that nobody listens on any more.
func closed(t *testing.T) string {
	t.Helper()
	l := listen(t, "closed.sock").(*net.UnixListener)
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	return l.Addr().String()
}

// TestAskGivesUp: who does not answer is not waited for.
func TestAskGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range []Runtime{CRI("silent", listen(t, "a").Addr().String()), Podman(listen(t, "b").Addr().String())} {
		if answers := Ask(ctx, []Runtime{r}); len(answers) != 1 || answers[0].Error == "" {
			t.Errorf("%s: %+v", r.Name, answers)
		}
	}
}
