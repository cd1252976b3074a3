package bench

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"

	"github.com/containernetworking/cni/pkg/invoke"
)

// wrapped has plugins run by another program that watches them.
type wrapped struct {
	*invoke.DefaultExec
	// run runs the command of a plugin, changed as it likes.
	run func(plugin *exec.Cmd) error
}

func (w *wrapped) ExecPlugin(ctx context.Context, plugin string, stdin []byte, environ []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, plugin)
	var stdout bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout = environ, bytes.NewReader(stdin), &stdout
	if err := w.run(cmd); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, stdout.Bytes())
	}
	return stdout.Bytes(), nil
}

// under makes cmd the argument of another program.
func under(cmd *exec.Cmd, program string, args ...string) {
	cmd.Args = append(append([]string{program}, args...), cmd.Args...)
	cmd.Path = program
}
