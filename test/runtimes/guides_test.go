package runtimes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestGuides starts a container on the network that the guide of its runtime has the reader describe, and asks for its page by the published port.
func TestGuides(t *testing.T) {
	for page, start := range map[string]func(n *node, t *testing.T) container{
		"containerd": func(n *node, t *testing.T) container {
			n.startContainerd(t, criNamespace)
			return n.criPod(t, "guided")
		},
		"podman": func(n *node, t *testing.T) container {
			n.setUpPodman(t)
			return n.podmanContainer(t, "guided")
		},
	} {
		t.Run(page, func(t *testing.T) {
			n := newNode(t)
			n.writeFile(t, filepath.Join(conflistDir, "10-web.conflist"), observed(t, networkOf(t, page)))
			before := processes(t)
			c := start(n, t)
			n.awaitPage(t, c.address)
			n.checkPublished(t, "8080")
			c.remove(t)
			n.checkUnpublished(t, "8080")
			if page == "podman" { // containerd goes on
				awaitEnd(t, before)
			}
		})
	}
}

// networkOf returns the network that a guide of docs/install shows.
func networkOf(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/install/" + page + ".md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(string(text))
	if shown == nil {
		t.Fatalf("docs/install/%s.md shows no network", page)
	}
	return shown[1]
}

// observed returns a network with the observer behind its plugins.
func observed(t *testing.T, conflist string) string {
	t.Helper()
	var network map[string]any
	if err := json.Unmarshal([]byte(conflist), &network); err != nil {
		t.Fatal(err)
	}
	network["plugins"] = append(network["plugins"].([]any), map[string]any{"type": observerName, "log": observerLog})
	text, err := json.Marshal(network)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
