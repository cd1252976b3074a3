package runtimes

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"
)

// TestGuides starts a container on the network that the guide of its runtime has the reader describe, and asks for its page by the published port.
func TestGuides(t *testing.T) {
	for _, c := range containerds {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.guided(t, "containerd")
			d := n.startContainerd(t, c, criNamespace, 1)
			n.checkGuided(t, d.criPod(t, "guided"))
		})
	}
	t.Run("podman", func(t *testing.T) {
		n := newNode(t)
		n.guided(t, "podman")
		n.setUpPodman(t)
		before := processes(t)
		n.checkGuided(t, n.podmanContainer(t, "guided"))
		awaitEnd(t, before)
	})
}

// guided makes the network of a guide the one that containers are attached to.
func (n *node) guided(t *testing.T, page string) {
	t.Helper()
	n.writeFile(t, conflistFile, observed(t, networkOf(t, "install/"+page)))
}

func (n *node) checkGuided(t *testing.T, c container) {
	t.Helper()
	n.awaitPage(t, c.address)
	n.checkPublished(t, "8080")
	n.checkPageFrom(t, c, "8080")
	c.remove(t)
	n.checkUnpublished(t, "8080")
}

// networkOf returns the first network that a page of the manual shows.
func networkOf(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page + ".md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(string(text))
	if shown == nil {
		t.Fatalf("docs/%s.md shows no network", page)
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
