package runtimes

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/test/netlab"
)

// observerName is the plugin type at the end of the network's chain that writes down how the runtime called it: with what
// verb, and for which container. Runtimes differ in that, and some call DEL only now and then.
const observerName = "observer"

// observe is the plugin.
func observe() {
	if err := answerCall(); err != nil {
		_ = types.NewError(types.ErrInternal, err.Error(), "").Print()
		os.Exit(1)
	}
	os.Exit(0)
}

func answerCall() error {
	verb := os.Getenv("CNI_COMMAND")
	if verb == "VERSION" {
		_, err := fmt.Println(`{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0","1.1.0"]}`)
		return err
	}
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var config struct {
		PrevResult json.RawMessage `json:"prevResult"`
		Log        string          `json:"log"`
	}
	if err := json.Unmarshal(stdin, &config); err != nil {
		return err
	}
	log, err := os.OpenFile(config.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := fmt.Fprintln(log, verb, os.Getenv("CNI_CONTAINERID"), os.Getenv("CNI_IFNAME")); err != nil {
		return err
	}
	if verb == "ADD" {
		_, err = os.Stdout.Write(config.PrevResult)
	}
	return err
}

// calls returns the verbs the runtime has called for a container, in order and without what repeats: a runtime may call
// DEL as often as it likes.
func (n *node) calls(t *testing.T, id string) string {
	t.Helper()
	var verbs []string
	for line := range strings.Lines(n.readFile(t, observerLog)) {
		verb, attachment, _ := strings.Cut(strings.TrimSpace(line), " ")
		repeats := len(verbs) > 0 && verbs[len(verbs)-1] == verb
		if attachment == id+" eth0" && !repeats {
			verbs = append(verbs, verb)
		}
	}
	return strings.Join(verbs, " ")
}

// called returns how often the runtime has called a verb.
func (n *node) called(t *testing.T, verb string) int {
	t.Helper()
	return strings.Count(n.readFile(t, observerLog), verb+" ")
}

// awaitCall waits until the runtime has called a verb more often than before.
func (n *node) awaitCall(t *testing.T, verb string, before int) {
	t.Helper()
	netlab.Eventually(t, func() error {
		if n.called(t, verb) == before {
			return fmt.Errorf("%s has been called %d times", verb, before)
		}
		return nil
	})
}
