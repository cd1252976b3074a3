// Kubelet runs a pod of Kubernetes through a container runtime's CRI socket. It is what tests need of a kubelet.
//
//	kubelet SOCKET CGROUP run FILE     runs a Pod, or that of a DaemonSet, and prints its ids and address as JSON
//	kubelet SOCKET CGROUP remove ID    removes the pod whose sandbox that is
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

const (
	configMaps = "/srv/configmaps" // a directory for each
	logs       = "/srv/logs"       // of containers, pod-container.log
)

func main() {
	if err := execute(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		os.Exit(1)
	}
}

func execute(args []string) error {
	if len(args) != 4 {
		return errors.New("usage: kubelet SOCKET CGROUP run FILE | kubelet SOCKET CGROUP remove ID")
	}
	ctx := context.Background() // whoever starts it ends it, too
	connection, err := grpc.NewClient("unix://"+args[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	k := kubelet{runtime: cri.NewRuntimeServiceClient(connection), cgroup: args[1]}
	switch args[2] {
	case "run":
		pod, err := readPod(args[3])
		if err != nil {
			return err
		}
		return k.run(ctx, pod)
	case "remove":
		return k.remove(ctx, args[3])
	}
	return fmt.Errorf("unknown command %q", args[2])
}

// readPod reads a Pod or a DaemonSet, and refuses what Kubernetes does not know.
func readPod(file string) (*core.Pod, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var set apps.DaemonSet
	if err := yaml.UnmarshalStrict(text, &set); err == nil && set.Kind == "DaemonSet" {
		return &core.Pod{ObjectMeta: set.ObjectMeta, Spec: set.Spec.Template.Spec}, nil
	}
	pod := &core.Pod{}
	return pod, yaml.UnmarshalStrict(text, pod)
}

type kubelet struct {
	runtime cri.RuntimeServiceClient
	cgroup  string
}

// started is what run prints.
type started struct {
	ID         string            `json:"id"`
	Address    string            `json:"address"`
	Containers map[string]string `json:"containers"` // ids by name
}

// run runs the init containers to their ends, and starts the others. If one can't be, all of the pod is removed.
func (k kubelet) run(ctx context.Context, pod *core.Pod) error {
	sandbox := k.sandbox(pod)
	answer, err := k.runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		return fmt.Errorf("run the sandbox: %w", err)
	}
	s := started{ID: answer.PodSandboxId, Containers: map[string]string{}}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		isInit := slices.ContainsFunc(pod.Spec.InitContainers, func(i core.Container) bool { return i.Name == c.Name })
		if s.Containers[c.Name], err = k.start(ctx, s.ID, sandbox, pod, c, isInit); err != nil {
			return errors.Join(fmt.Errorf("container %s: %w", c.Name, err), k.remove(ctx, s.ID))
		}
	}
	status, err := k.runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: s.ID})
	if err != nil {
		return err
	}
	s.Address = status.GetStatus().GetNetwork().GetIp()
	return json.NewEncoder(os.Stdout).Encode(s)
}

func (k kubelet) remove(ctx context.Context, id string) error {
	if _, err := k.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("stop the sandbox: %w", err)
	}
	_, err := k.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

func (k kubelet) sandbox(pod *core.Pod) *cri.PodSandboxConfig {
	s := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: pod.Name, Uid: pod.Name, Namespace: cmp.Or(pod.Namespace, "default")},
		LogDirectory: logs,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    k.cgroup,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces(pod), Privileged: isPrivileged(pod)},
		},
	}
	if !pod.Spec.HostNetwork {
		s.Hostname = pod.Name
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			s.PortMappings = append(s.PortMappings, &cri.PortMapping{ContainerPort: p.ContainerPort, HostPort: p.HostPort})
		}
	}
	return s
}

func namespaces(pod *core.Pod) *cri.NamespaceOption {
	n := &cri.NamespaceOption{Network: cri.NamespaceMode_POD, Pid: cri.NamespaceMode_CONTAINER}
	if pod.Spec.HostNetwork {
		n.Network = cri.NamespaceMode_NODE
	}
	if pod.Spec.HostPID {
		n.Pid = cri.NamespaceMode_NODE
	}
	return n
}

func isPrivileged(pod *core.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c core.Container) bool { return value(security(c).Privileged, false) })
}

func security(c core.Container) *core.SecurityContext {
	return cmp.Or(c.SecurityContext, &core.SecurityContext{})
}

// value is what a pointer leads to, or what it is otherwise.
func value[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// start starts a container, and waits for the end of one that is to end.
func (k kubelet) start(ctx context.Context, id string, sandbox *cri.PodSandboxConfig, pod *core.Pod, c core.Container, isInit bool) (string, error) {
	config, err := container(pod, c)
	if err != nil {
		return "", err
	}
	created, err := k.runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: id, SandboxConfig: sandbox, Config: config})
	if err != nil {
		return "", fmt.Errorf("create: %w", err)
	}
	if _, err := k.runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
		return "", fmt.Errorf("start: %w", err)
	}
	for isInit {
		status, err := k.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: created.ContainerId})
		if err != nil {
			return "", err
		}
		if s := status.Status; s.State == cri.ContainerState_CONTAINER_EXITED {
			log, err := os.ReadFile(filepath.Join(logs, config.LogPath))
			if s.ExitCode != 0 || err != nil {
				return "", fmt.Errorf("exit code %d (%v):\n%s", s.ExitCode, err, log)
			}
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return created.ContainerId, nil
}

func container(pod *core.Pod, c core.Container) (*cri.ContainerConfig, error) {
	is := security(c)
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: c.Name},
		Image:    &cri.ImageSpec{Image: c.Image},
		Command:  c.Command, Args: c.Args,
		LogPath: pod.Name + "-" + c.Name + ".log",
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
			Privileged:       value(is.Privileged, false),
			ReadonlyRootfs:   value(is.ReadOnlyRootFilesystem, false),
			NoNewPrivs:       !value(is.AllowPrivilegeEscalation, true),
			NamespaceOptions: namespaces(pod),
		}},
	}
	if is.RunAsUser != nil {
		config.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: *is.RunAsUser}
	}
	if is.Capabilities != nil {
		names := &cri.Capability{}
		for _, name := range is.Capabilities.Add {
			names.AddCapabilities = append(names.AddCapabilities, string(name))
		}
		for _, name := range is.Capabilities.Drop {
			names.DropCapabilities = append(names.DropCapabilities, string(name))
		}
		config.Linux.SecurityContext.Capabilities = names
	}
	for _, m := range c.VolumeMounts {
		at := slices.IndexFunc(pod.Spec.Volumes, func(v core.Volume) bool { return v.Name == m.Name })
		if at < 0 {
			return nil, fmt.Errorf("there is no volume %s", m.Name)
		}
		path, err := volume(pod.Spec.Volumes[at])
		if err != nil {
			return nil, err
		}
		propagation := map[core.MountPropagationMode]cri.MountPropagation{
			core.MountPropagationHostToContainer: cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
			core.MountPropagationBidirectional:   cri.MountPropagation_PROPAGATION_BIDIRECTIONAL,
		}[value(m.MountPropagation, core.MountPropagationNone)]
		config.Mounts = append(config.Mounts, &cri.Mount{HostPath: path, ContainerPath: m.MountPath, Readonly: m.ReadOnly, Propagation: propagation})
	}
	return config, nil
}

// volume returns where a volume is on the node.
func volume(v core.Volume) (path string, err error) {
	switch {
	case v.HostPath != nil:
		path = v.HostPath.Path
		if value(v.HostPath.Type, core.HostPathUnset) == core.HostPathDirectoryOrCreate {
			return path, os.MkdirAll(path, 0o755)
		}
	case v.ConfigMap != nil:
		path = filepath.Join(configMaps, v.ConfigMap.Name)
		if value(v.ConfigMap.Optional, false) {
			return path, os.MkdirAll(path, 0o755)
		}
	default:
		return "", fmt.Errorf("volume %s is of a kind that is not known here", v.Name)
	}
	_, err = os.Stat(path)
	return path, err
}
