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

// grace is what a plugin gets to undo what it did after it was told to end. cnibox takes at most 20 seconds.
const grace = 30 * time.Second

// pluginExec runs plugins for libcni. Unlike libcni's own, which kills a plugin when the call is cancelled, it sends SIGTERM and
// waits; and a Ctrl-C at the terminal does not reach plugins, which may be taking something away.
type pluginExec struct {
	version.PluginDecoder
	cacheDir string // which plugins look into, too
}

// Exec returns what libcni calls plugins with that look into a cache directory.
func Exec(cacheDir string) invoke.Exec { return &pluginExec{cacheDir: cacheDir} }

func (*pluginExec) FindInPath(plugin string, paths []string) (string, error) {
	path, err := invoke.FindInPath(plugin, paths)
	if err != nil {
		return "", types.NewError(types.ErrInvalidNetworkConfig,
			fmt.Sprintf("plugin %q is not in %s", plugin, strings.Join(paths, string(os.PathListSeparator))),
			"install it (cnictl install --dir DIR), correct the type in the network, or name its directory with --bin-dir or CNI_PATH")
	}
	return path, nil
}

// bestEffort writes what need not arrive.
type bestEffort struct{ to io.Writer }

func (w bestEffort) Write(text []byte) (int, error) {
	_, _ = w.to.Write(text)
	return len(text), nil
}

func (e *pluginExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(environ, "CNIBOX_CACHE_DIR="+e.cacheDir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, io.MultiWriter(&stderr, bestEffort{os.Stderr})
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Run()
	if err == nil {
		return stdout.Bytes(), nil
	}
	var document types.Error
	if json.Unmarshal(stdout.Bytes(), &document) == nil && document.Msg != "" {
		return nil, &document
	}
	return nil, &types.Error{
		Msg:     fmt.Sprintf("%s ended without an error document: %v", path, err),
		Details: strings.TrimSpace("its output: " + strings.TrimSpace(stdout.String()) + " " + strings.TrimSpace(stderr.String())),
	}
}
