package main

import (
	"bytes"
	"strings"
	"testing"
)

// outcome is what came of a call of cnictl.
type outcome struct {
	code           int
	stdout, stderr string
}

// inProcess runs cnictl in the process of the test.
func inProcess(args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := execute(newRoot(), args, &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

func assertContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

func assertEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
