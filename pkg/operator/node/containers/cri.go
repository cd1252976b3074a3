package containers

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// askCRI lists the pods that run. Their containers share the pod's network, for which CNI knows the pod's id alone.
func askCRI(ctx context.Context, socket string) (list []Container, err error) {
	const longest = 16 << 20 // as the kubelet allows it; a pod takes some hundred bytes
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(longest)), grpc.WithNoProxy())
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	answer, err := cri.NewRuntimeServiceClient(connection).ListPodSandbox(ctx, &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}},
	})
	if err != nil {
		return nil, err
	}
	for _, pod := range answer.GetItems() {
		list = append(list, Container{ID: pod.GetId(), Name: pod.GetMetadata().GetNamespace() + "/" + pod.GetMetadata().GetName()})
	}
	return list, nil
}
