// Criclient runs and removes one pod through a container runtime's CRI socket, the way a kubelet does. It is what the
// end-to-end tests need of crictl, and takes the text of the same files.
//
//	criclient SOCKET run POD CONTAINER     prints the ids of both and the pod's addresses as JSON
//	criclient SOCKET remove POD-ID
//	criclient SOCKET list                  prints the ids of all pods, running or not
//	criclient SOCKET status                prints why the network is not ready, or nothing
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func main() {
	if err := execute(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "criclient:", err)
		os.Exit(1)
	}
}

func execute(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: criclient SOCKET (run POD CONTAINER | remove POD-ID | list | status)")
	}
	ctx := context.Background() // whoever starts it ends it, too
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
	case command == "list" && len(args) == 0:
		return list(ctx, runtime)
	case command == "status" && len(args) == 0:
		return status(ctx, runtime)
	default:
		return fmt.Errorf("unknown command %q with %d arguments", command, len(args))
	}
}

// run starts a pod with one container. The pod is removed again when its container can't be started.
func run(ctx context.Context, runtime cri.RuntimeServiceClient, podText, containerText string) error {
	var pod cri.PodSandboxConfig
	if err := json.Unmarshal([]byte(podText), &pod); err != nil {
		return fmt.Errorf("read the pod: %w", err)
	}
	var container cri.ContainerConfig
	if err := json.Unmarshal([]byte(containerText), &container); err != nil {
		return fmt.Errorf("read the container: %w", err)
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
	ID        string   `json:"id"`
	Addresses []string `json:"addresses"`
	Container string   `json:"container"`
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
	network := status.GetStatus().GetNetwork()
	addresses := []string{network.GetIp()}
	for _, further := range network.GetAdditionalIps() {
		addresses = append(addresses, further.Ip)
	}
	return &startedPod{id, addresses, created.ContainerId}, nil
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

func list(ctx context.Context, runtime cri.RuntimeServiceClient) error {
	pods, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	for _, pod := range pods.GetItems() {
		fmt.Println(pod.Id)
	}
	return err
}

func status(ctx context.Context, runtime cri.RuntimeServiceClient) error {
	answer, err := runtime.Status(ctx, &cri.StatusRequest{})
	for _, condition := range answer.GetStatus().GetConditions() {
		if condition.Type == cri.NetworkReady && !condition.Status {
			fmt.Println(condition.Reason, condition.Message)
		}
	}
	return err
}
