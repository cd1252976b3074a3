// Gocni is a runtime's side of CNI and nothing else: what containerd, nerdctl and BuildKit do with go-cni. It reads requests and answers
// each, as JSON in a line of its own, until its input ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/containerd/go-cni"
)

// request asks for one call of go-cni: load, status, setup or remove. The last two are for all containers at once.
type request struct {
	Call       string
	Networks   int // how many of those in /etc/cni/net.d load takes
	Containers []container
}

type container struct {
	ID, Netns    string
	Ports        []cni.PortMapping
	Capabilities map[string]any
	Args         map[string]string
}

// answer is what came of one container, or of a request for none.
type answer struct {
	Error      string
	Interfaces map[string]*cni.Config
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "gocni:", err)
		os.Exit(1)
	}
}

func serve() error {
	library, err := cni.New(cni.WithMinNetworkCount(2)) // a network and lo, as containerd has it
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r request
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var answers []answer
		switch r.Call {
		case "load":
			answers = one(library.Load(cni.WithPluginMaxConfNum(r.Networks), cni.WithLoNetwork, cni.WithDefaultConf))
		case "status":
			answers = one(library.Status())
		default:
			answers = all(library, r)
		}
		if err := out.Encode(answers); err != nil {
			return err
		}
	}
}

func one(err error) []answer { return []answer{{Error: text(err)}} }

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func all(library cni.CNI, r request) []answer {
	answers := make([]answer, len(r.Containers))
	var wait sync.WaitGroup
	for i, c := range r.Containers {
		wait.Go(func() { answers[i] = c.call(library, r.Call) })
	}
	wait.Wait()
	return answers
}

func (c container) call(library cni.CNI, call string) answer {
	var options []cni.NamespaceOpts
	if len(c.Ports) > 0 {
		options = append(options, cni.WithCapabilityPortMap(c.Ports))
	}
	for name, value := range c.Capabilities {
		options = append(options, cni.WithCapability(name, value))
	}
	for name, value := range c.Args {
		options = append(options, cni.WithArgs(name, value))
	}
	ctx := context.Background()
	switch call {
	case "setup":
		result, err := library.Setup(ctx, c.ID, c.Netns, options...)
		if err != nil {
			return answer{Error: err.Error()}
		}
		return answer{Interfaces: result.Interfaces}
	case "remove":
		return answer{Error: text(library.Remove(ctx, c.ID, c.Netns, options...))}
	}
	return answer{Error: "no such call: " + call}
}
