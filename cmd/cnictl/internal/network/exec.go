package network

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// grace is what a plugin gets to undo what it did after it was told to end.
// cnibox takes at most 20 seconds.
const grace = 30 * time.Second

// pluginExec runs plugins for libcni. Unlike libcni's own, which kills a plugin
// when the call is cancelled, it sends SIGTERM and waits; and a Ctrl-C at the
// terminal does not reach plugins, which may be taking something away.
type pluginExec struct {
	version.PluginDecoder
	stderr   io.Writer
	cacheDir string // Node.CacheDir, which plugins look into too
}

var _ invoke.Exec = &pluginExec{}

func (e *pluginExec) FindInPath(plugin string, paths []string) (string, error) {
	path, err := invoke.FindInPath(plugin, paths)
	if err != nil {
		return "", &types.Error{
			Code:    types.ErrInvalidNetworkConfig,
			Msg:     fmt.Sprintf("plugin %q is not in %s", plugin, strings.Join(paths, string(os.PathListSeparator))),
			Details: "install it (cnictl install --dir DIR), correct the type in the network, or name its directory with --bin-dir or CNI_PATH",
		}
	}
	return path, nil
}

func (e *pluginExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(environ, "CNIBOX_CACHE_DIR="+e.cacheDir)
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Stdout = &stdout
	cmd.Stderr = io.MultiWriter(&stderr, e.stderr)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); err != nil {
		return nil, pluginError(path, err, stdout.Bytes(), stderr.String())
	}
	return stdout.Bytes(), nil
}

// pluginError returns the error document of a plugin, or one for a plugin that
// died without.
func pluginError(path string, err error, stdout []byte, stderr string) error {
	var e types.Error
	if json.Unmarshal(stdout, &e) == nil && e.Msg != "" {
		return &e
	}
	return &types.Error{
		Msg:     fmt.Sprintf("%s ended without an error document: %v", path, err),
		Details: strings.TrimSpace("its output: " + strings.TrimSpace(string(stdout)) + " " + strings.TrimSpace(stderr)),
	}
}
