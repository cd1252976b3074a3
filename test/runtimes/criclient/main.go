// Criclient runs and removes one pod through a container runtime's CRI socket, the way a kubelet does. It is what the
// end-to-end tests need of crictl, and reads the same files.
//
//	criclient SOCKET run POD.json CONTAINER.json     prints the ids of both and the pod's address as JSON
//	criclient SOCKET remove POD-ID
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// timeout bounds one invocation; a pod takes well under a second.
const timeout = time.Minute

func main() {
	if err := execute(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "criclient:", err)
		os.Exit(1)
	}
}

func execute(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: criclient SOCKET run POD.json CONTAINER.json | criclient SOCKET remove POD-ID")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+args[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	runtime := cri.NewRuntimeServiceClient(connection)

	switch command, args := args[1], args[2:]; {
	case command == "run" && len(args) == 2:
		return run(ctx, runtime, args[0], args[1])
	case command == "remove" && len(args) == 1:
		return remove(ctx, runtime, args[0])
	default:
		return fmt.Errorf("unknown command %q with %d arguments", command, len(args))
	}
}

// run starts a pod with one container. The pod is removed again when its container can't be started.
func run(ctx context.Context, runtime cri.RuntimeServiceClient, podFile, containerFile string) error {
	var pod cri.PodSandboxConfig
	if err := readJSON(podFile, &pod); err != nil {
		return err
	}
	var container cri.ContainerConfig
	if err := readJSON(containerFile, &container); err != nil {
		return err
	}
	sandbox, err := runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: &pod})
	if err != nil {
		return fmt.Errorf("run the pod sandbox: %w", err)
	}
	started, err := start(ctx, runtime, sandbox.PodSandboxId, &pod, &container)
	if err != nil {
		return errors.Join(err, remove(ctx, runtime, sandbox.PodSandboxId))
	}
	return json.NewEncoder(os.Stdout).Encode(started)
}

// startedPod is what run prints.
type startedPod struct {
	ID        string `json:"id"`
	Address   string `json:"address"`
	Container string `json:"container"`
}

// start starts the container in its pod.
func start(ctx context.Context, runtime cri.RuntimeServiceClient, id string, pod *cri.PodSandboxConfig, container *cri.ContainerConfig) (*startedPod, error) {
	created, err := runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: id, SandboxConfig: pod, Config: container,
	})
	if err != nil {
		return nil, fmt.Errorf("create the container: %w", err)
	}
	_, err = runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: created.ContainerId})
	if err != nil {
		return nil, fmt.Errorf("start the container: %w", err)
	}
	status, err := runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, fmt.Errorf("get the status of the pod sandbox: %w", err)
	}
	return &startedPod{
		ID:        id,
		Address:   status.GetStatus().GetNetwork().GetIp(),
		Container: created.ContainerId,
	}, nil
}

func remove(ctx context.Context, runtime cri.RuntimeServiceClient, id string) error {
	if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("stop the pod sandbox: %w", err)
	}
	if _, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("remove the pod sandbox: %w", err)
	}
	return nil
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
