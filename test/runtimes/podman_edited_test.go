package runtimes

import (
	"strings"
	"testing"
)

// networkEdits are command lines that edit the network's file, or remove it.
var networkEdits = []struct{ name, command string }{
	{"another subnet", "sed -i s/10.88.0.0/10.99.0.0/ $network"},
	{"another bridge", "sed -i s/" + bridgeName + "/other0/ $network"},
	{"another bridge, and libcni's result is lost", "sed -i s/" + bridgeName + "/other0/ $network; rm /var/lib/cni/results/*"},
	{"no ports", "sed -i s/portmap/tuning/ $network"},
	// podman makes up a default network where it finds none, and calls DEL with that.
	{"a key that bridge does not take, and libcni's result is lost", `sed -i 's/"isGateway": true/"isGateway": "yes"/' $network; rm /var/lib/cni/results/*`},
	{"no JSON", "echo '{' > $network"},
	{"no JSON, and libcni's result is lost", "echo '{' > $network; rm /var/lib/cni/results/*"},
	{"no file", "rm $network"},
	{"no file, and libcni's result is lost", "rm $network /var/lib/cni/results/*"},
}

// TestPodmanEdited edits the network's file, or removes it, while a container runs, and has podman remove the container.
func TestPodmanEdited(t *testing.T) {
	tried(t, podman, edited)
	p := newPodmanNode(t)
	for _, edit := range networkEdits {
		t.Run(edit.name, func(t *testing.T) {
			c := p.podmanRun(t, "web", "--publish", "8080:80")
			p.awaitPage(t, c.address)
			p.edit(t, edit.command)
			c.remove(t)
			p.writeFile(t, conflistFile, p.conflist)
			p.checkUnpublished(t, "8080")
			p.checkNothingLeft(t)
		})
	}
}

func (p *podmanNode) edit(t *testing.T, command string) {
	t.Helper()
	p.run(t, "sh", "-ec", strings.ReplaceAll(command, "$network", conflistFile))
}
