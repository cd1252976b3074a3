package netlab

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// fakePluginName is the name under which this test binary is a plugin.
const fakePluginName = "fake"

// fakePlugin is a plugin that keeps a file per attachment, and reports what it was given. It does not return.
func fakePlugin() {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	var config struct {
		CNIVersion string
		Fail       bool
		Valid      []types.GCAttachment `json:"cni.dev/valid-attachments"`
	}
	if err := json.Unmarshal(input, &config); err != nil || config.Fail {
		fmt.Printf(`{"cniVersion":"1.1.0","code":7,"msg":"told to fail","details":%q}`, os.Getenv("CNI_COMMAND"))
		os.Exit(1)
	}
	file := "/run/fake-" + os.Getenv("CNI_CONTAINERID") + "-" + os.Getenv("CNI_IFNAME")
	switch os.Getenv("CNI_COMMAND") {
	case "ADD":
		netns, err := os.Readlink("/proc/self/ns/net")
		if err == nil {
			err = os.WriteFile(file, input, 0o600)
		}
		if err != nil {
			panic(err)
		}
		fmt.Printf(`{"cniVersion":%q,"interfaces":[{"name":"eth0","sandbox":%q}],"dns":{"domain":%q}}`,
			config.CNIVersion, os.Getenv("CNI_NETNS"), netns)
	case "DEL":
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			panic(err)
		}
	case "CHECK":
		if _, err := os.Stat(file); err != nil {
			fmt.Printf(`{"cniVersion":"1.1.0","code":999,"msg":"not attached"}`)
			os.Exit(1)
		}
	case "STATUS", "GC":
	case "ENV":
		env := os.Environ()
		slices.Sort(env)
		out, _ := json.Marshal(map[string]any{"env": env})
		fmt.Fprintln(os.Stderr, "about to answer")
		os.Stdout.Write(out)
	}
	os.Exit(0)
}

func installFake(t *testing.T, h *Host) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h.InstallPlugin(t, fakePluginName, self)
}

func TestExec(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	installFake(t, h)
	pod := h.NewPod(t, "web")

	added := h.Exec(t, "fake", pod.Call("ADD", map[string]any{"cniVersion": "0.4.0", "name": "net"}))
	result := added.Result(t)
	if got := result.Interfaces[0].Sandbox; got != "/run/netns/web" {
		t.Errorf("CNI_NETNS was %q", got)
	}
	if got, want := result.DNS.Domain, h.MustRun(t, "readlink", "-n", "/proc/self/ns/net"); got != want {
		t.Errorf("the plugin ran in %q, not on the host %q", got, want)
	}
	if got := added.Map(t)["cniVersion"]; got != "0.4.0" {
		t.Errorf("Map has cniVersion %v", got)
	}

	failed := h.Exec(t, "fake", pod.Call("DEL", `{"fail":true}`))
	if failed.ExitCode != 1 || failed.Error == nil || *failed.Error != (CNIError{"1.1.0", 7, "told to fail", "DEL"}) {
		t.Errorf("failure is %s, error %v", failed, failed.Error)
	}
	if broken := h.Exec(t, "/bin/sh", PluginCall{Config: "echo '{}{}'; exit 1"}); broken.Error != nil {
		t.Errorf("two documents are not one error: %v", broken.Error)
	}
	if killed := h.Exec(t, "/bin/sh", PluginCall{Config: "kill -9 $$"}); killed.ExitCode != -1 {
		t.Errorf("exit code %d after a signal", killed.ExitCode)
	}
}

func TestExecGivesExactEnvironment(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	installFake(t, h)
	got := h.Exec(t, "fake", PluginCall{
		Command: "ENV",
		Args:    "K=V",
		Config:  []byte("{}"),
		Env:     []string{"PATH=/nowhere", "CNI_NETNS=", "EXTRA=1"},
	})
	want := []any{"CNI_ARGS=K=V", "CNI_COMMAND=ENV", "CNI_NETNS=", "EXTRA=1", "PATH=/nowhere"}
	if env := got.Map(t)["env"].([]any); !slices.Equal(env, want) {
		t.Errorf("environment is %q, want %q", env, want)
	}
	if got.Stderr != "about to answer\n" {
		t.Errorf("stderr is %q", got.Stderr)
	}
}

func TestLibcni(t *testing.T) {
	t.Parallel()
	const conflist = `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"fake","capabilities":{"mac":true}}]}`
	h := NewHost(t)
	installFake(t, h)
	pod := h.NewPod(t, "web")
	rt := pod.RuntimeConf(map[string]any{"mac": "02:00:00:00:00:01"})
	before := h.Snapshot(t)

	must(t, h.StatusList(conflist))
	result, err := h.AddList(conflist, rt)
	must(t, err)
	if got, want := result.DNS.Domain, h.MustRun(t, "readlink", "-n", "/proc/self/ns/net"); got != want {
		t.Errorf("the plugin ran in %q, not on the host %q", got, want)
	}
	if sent := h.MustRun(t, "cat", "/run/fake-"+pod.ID+"-eth0"); !strings.Contains(sent, `"runtimeConfig":{"mac":"02:00:00:00:00:01"}`) {
		t.Errorf("the plugin was sent %s", sent)
	}
	if cached := h.Snapshot(t).Lines("file /var/lib/cni/results/net-" + pod.ID + "-eth0"); len(cached) != 1 {
		t.Errorf("cached results: %q", cached)
	}
	must(t, h.CheckList(conflist, rt))
	must(t, h.GCList(conflist, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: pod.ID, IfName: "eth0"}}}))
	must(t, h.CheckList(conflist, rt))
	must(t, h.DelList(conflist, rt))
	if err := h.CheckList(conflist, rt); err == nil || !strings.Contains(err.Error(), "not attached") {
		t.Errorf("CHECK after DEL: %v", err)
	}
	// libcni's directory stays.
	if diff := before.Diff(h.Snapshot(t), "file /var/lib/cni/results "); diff != "" {
		t.Errorf("left behind:\n%s", diff)
	}

	_, err = h.AddList(conflist, rt)
	must(t, err)
	must(t, h.GCList(conflist, &libcni.GCArgs{}))
	if err := h.CheckList(conflist, rt); err == nil {
		t.Error("still attached after GC with an empty list")
	}
}

func TestLibcniErrors(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	installFake(t, h)
	rt := h.NewPod(t, "web").RuntimeConf(nil)
	for conflist, want := range map[string]string{
		`{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"fake","fail":true}]}`: "told to fail",
		`{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"absent"}]}`:           `failed to find plugin "absent"`,
		`{`: "load a conflist",
	} {
		if _, err := h.AddList(conflist, rt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", conflist, err, want)
		}
	}
}

// TestProbes asks for every feature: there must be an answer, whatever it is.
func TestProbes(t *testing.T) {
	t.Parallel()
	for _, feature := range []Feature{Dummy, IPVLAN, VLAN, VRF, BridgeVLANFiltering, BridgeNetfilter, SCTP} {
		t.Logf("%s: %v", feature.Name, Has(t, feature))
	}
}

// TestInstallPlugins runs the real binary under the name of a plugin.
func TestInstallPlugins(t *testing.T) {
	t.Parallel()
	h := NewHost(t)
	h.InstallPlugins(t, "bridge", "host-local")
	files := h.Snapshot(t).Lines("file " + PluginDir + "/")
	if len(files) != 4 || !strings.Contains(files[0], "bridge -rwxr-xr-x ") || !strings.HasSuffix(files[1], "cnibox Lrwxrwxrwx -> "+Cnibox(t)) {
		t.Errorf("files are %q", files)
	}
	about := h.Exec(t, "bridge", PluginCall{})
	if about.ExitCode != 0 || !strings.Contains(about.Stdout+about.Stderr, "CNI") {
		t.Errorf("the plugin does not introduce itself: %s", about)
	}
}

func TestProvidePrebuilt(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(binDirEnv, dir)
	if _, err := provide(); !os.IsNotExist(err) {
		t.Errorf("empty directory: %v", err)
	}
	must(t, os.WriteFile(dir+"/cnibox", nil, 0o755))
	if got, err := provide(); got != dir || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	t.Setenv(binDirEnv, "bin")
	if _, err := provide(); err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("relative directory: %v", err)
	}
}
