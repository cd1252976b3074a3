package finding

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// Command is a program and its arguments. No shell reads them, whatever is in them.
type Command []string

// plainWord matches what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Quote writes a word so that a shell takes it as one, whatever is in it.
func Quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// String returns the line that has a shell do the same.
func (c Command) String() string {
	quoted := make([]string, 0, len(c))
	for _, w := range c {
		quoted = append(quoted, Quote(w))
	}
	return strings.Join(quoted, " ")
}

// Remedy is what mends a finding, step by step.
type Remedy []step

// step is a command, or what no command of ours does: then only line is set.
type step struct {
	line    string
	command Command
}

// Run is a command.
func Run(words ...string) Remedy { return Remedy{{Command(words).String(), words}} }

// Shell is a line for a shell, such as one that writes a file. Nobody runs it but the person who pastes it.
func Shell(line string) Remedy { return Remedy{{line: line}} }

// Say is a sentence for a person: a shell passes over it.
func Say(format string, args ...any) Remedy {
	return Shell("# " + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

// Steps joins remedies.
func Steps(list ...Remedy) Remedy { return slices.Concat(list...) }

// String returns the steps, each in a line of its own, to be pasted into a shell.
func (r Remedy) String() string { return r.join("\n") }

// InLine returns the steps in one line.
func (r Remedy) InLine() string { return r.join("; ") }

func (r Remedy) join(between string) string {
	lines := make([]string, 0, len(r))
	for _, s := range r {
		lines = append(lines, s.line)
	}
	return strings.Join(lines, between)
}

// Commands returns those of the steps that are commands.
func (r Remedy) Commands() (list []Command) {
	for _, s := range r {
		if s.command != nil {
			list = append(list, s.command)
		}
	}
	return list
}

// RunAll runs commands one after the other, up to the first that fails.
func RunAll(ctx context.Context, list []Command) error {
	for _, c := range list {
		if text, err := exec.CommandContext(ctx, c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text)))
		}
	}
	return nil
}
