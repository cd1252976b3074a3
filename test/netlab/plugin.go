package netlab

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/cnibox/cnibox/pkg/operator/stub"
)

// PluginDir is where a Host's plugins are.
const PluginDir = "/opt/cni/bin"

// InstallPlugins makes plugin names stubs of the cnibox under test in the Host's PluginDir, as `cnictl install` does.
func (h *Host) InstallPlugins(t testing.TB, names ...string) {
	t.Helper()
	dir := filepath.Dir(Cnibox(t))
	h.install(t, []string{"cnibox", "cnibox-etcd"}, func(name string) string { return filepath.Join(dir, name) })
	if len(names) == 0 {
		return
	}
	made := provided(t, "stubs", stubs)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range names {
		content := made["cnibox"]
		if name == "etcd" { // a program of its own
			content = made["cnibox-etcd"]
		}
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))})
		if _, failed := w.Write(content); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// Another program writes them: a program that this process has open to write could not be run by what it forks meanwhile.
	h.Feed(t, archive.String(), "tar", "-xC", PluginDir)
}

// stubs are those of the programs under test, by the program.
var stubs = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := binaries()
	if err != nil {
		return nil, err
	}
	cnictl, err := os.ReadFile(filepath.Join(dir, "cnictl"))
	if err != nil {
		return nil, err
	}
	made := map[string][]byte{}
	for _, binary := range []string{"cnibox", "cnibox-etcd"} {
		content, failed := stub.Make(cnictl, stub.Programs(binary)...)
		made[binary], err = content, errors.Join(err, failed)
	}
	return made, err
})

// InstallFrom links plugin names to the programs of the same names in dir, in the Host's PluginDir.
func (h *Host) InstallFrom(t testing.TB, dir string, names ...string) {
	t.Helper()
	h.install(t, names, func(name string) string { return filepath.Join(dir, name) })
}

// InstallPlugin links one plugin name in the Host's PluginDir to any program: a stand-in, or somebody else's plugin. What
// has been installed by that name before is replaced.
func (h *Host) InstallPlugin(t testing.TB, name, target string) {
	t.Helper()
	h.install(t, []string{name}, func(string) string { return target })
}

func (h *Host) install(t testing.TB, names []string, target func(name string) string) {
	t.Helper()
	err := h.do(func() error {
		if err := os.MkdirAll(PluginDir, 0o755); err != nil {
			return err
		}
		for _, name := range names {
			link := filepath.Join(PluginDir, name)
			if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err := os.Symlink(target(name), link); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("install plugins %s: %v", strings.Join(names, ", "), err)
	}
}

// PluginCall is what a runtime gives a plugin. A CNI_ variable is set when its field is not empty; to set one to
// nothing put it in Env.
type PluginCall struct {
	Command     string // CNI_COMMAND
	ContainerID string // CNI_CONTAINERID
	Netns       string // CNI_NETNS
	IfName      string // CNI_IFNAME
	Args        string // CNI_ARGS
	Path        string // CNI_PATH

	// Config is the plugin's standard input: a string or []byte as it is, anything else as JSON.
	Config any
	// Env are more variables. There are no others but PATH, which is the test's own, after what UseIPTables puts before it,
	// unless it is given here, and the test's GODEBUG, as for a test of fips140=only.
	Env []string
}

// Call returns the call that a runtime makes for the pod's eth0.
func (p *Pod) Call(command string, config any) PluginCall {
	return PluginCall{Command: command, ContainerID: p.ID, Netns: p.Path(), IfName: "eth0", Path: PluginDir, Config: config}
}

// PluginResult is what a plugin answered.
type PluginResult struct {
	Stdout, Stderr string
	// ExitCode is -1 when the plugin was ended by a signal.
	ExitCode int
	// Error is the error document on Stdout, when the exit code is not 0 and Stdout is one.
	Error *CNIError
}

// CNIError is the document a plugin prints when it fails.
type CNIError struct {
	CNIVersion string `json:"cniVersion"`
	Code       uint   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details"`
}

func (e *CNIError) Error() string {
	return fmt.Sprintf("CNI error %d: %s; details: %s", e.Code, e.Msg, e.Details)
}

// Exec runs a plugin on the Host as a runtime does, with libcni left out. The plugin is a name in PluginDir or a path. A
// plugin that fails is a result; only one that can't be started ends the test.
func (h *Host) Exec(t testing.TB, plugin string, call PluginCall) PluginResult {
	t.Helper()
	cmd := h.PluginCommand(t, plugin, call)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := h.Run(cmd)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run plugin %s: %v", plugin, err)
	}
	r := PluginResult{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: cmd.ProcessState.ExitCode()}
	var document CNIError
	if r.ExitCode != 0 && decodeOne(r.Stdout, &document) == nil {
		r.Error = &document
	}
	return r
}

// PluginCommand returns the command that Exec runs, for tests that want to send a signal to it or trace it.
func (h *Host) PluginCommand(t testing.TB, plugin string, call PluginCall) *exec.Cmd {
	t.Helper()
	if !strings.Contains(plugin, "/") {
		plugin = filepath.Join(PluginDir, plugin)
	}
	cmd := h.Command(plugin)
	cmd.Env = []string{"PATH=" + h.path}
	if debug := os.Getenv("GODEBUG"); debug != "" {
		cmd.Env = append(cmd.Env, "GODEBUG="+debug)
	}
	for _, v := range [][2]string{
		{"CNI_COMMAND", call.Command}, {"CNI_CONTAINERID", call.ContainerID}, {"CNI_NETNS", call.Netns},
		{"CNI_IFNAME", call.IfName}, {"CNI_ARGS", call.Args}, {"CNI_PATH", call.Path},
	} {
		if v[1] != "" {
			cmd.Env = append(cmd.Env, v[0]+"="+v[1])
		}
	}
	cmd.Env = append(cmd.Env, call.Env...) // of two equal names os/exec passes the later one
	var stdin []byte
	switch config := call.Config.(type) {
	case nil:
	case string:
		stdin = []byte(config)
	case []byte:
		stdin = config
	default:
		var err error
		if stdin, err = json.Marshal(config); err != nil {
			t.Fatalf("encode the configuration for plugin %s: %v", plugin, err)
		}
	}
	cmd.Stdin = bytes.NewReader(stdin)
	return cmd
}

// decodeOne decodes text, which must be one JSON document and nothing else.
func decodeOne(text string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON document")
	}
	return nil
}

// Map returns the result document as it was printed. The test fails when the plugin did, or printed anything else.
func (r PluginResult) Map(t testing.TB) map[string]any {
	t.Helper()
	var document map[string]any
	r.decode(t, &document)
	return document
}

// Result returns the result, converted to the newest version. The test fails when the plugin did, or printed anything
// else.
func (r PluginResult) Result(t testing.TB) *types100.Result {
	t.Helper()
	var document json.RawMessage
	r.decode(t, &document)
	versioned, err := create.CreateFromBytes(document)
	if err != nil {
		t.Fatalf("decode the result: %v\n%s", err, r.Stdout)
	}
	result, err := types100.NewResultFromResult(versioned)
	if err != nil {
		t.Fatalf("convert the result: %v\n%s", err, r.Stdout)
	}
	return result
}

func (r PluginResult) decode(t testing.TB, into any) {
	t.Helper()
	if r.ExitCode != 0 {
		t.Fatalf("the plugin failed: %s", r)
	}
	if err := decodeOne(r.Stdout, into); err != nil {
		t.Fatalf("decode the result: %v: %s", err, r)
	}
}

// String tells all about the result.
func (r PluginResult) String() string {
	return fmt.Sprintf("exit code %d, stdout %q, stderr %q", r.ExitCode, r.Stdout, r.Stderr)
}
