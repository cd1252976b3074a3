package operator

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestRelease frees the address of who is gone, with all that leads to it, and of nobody else.
func TestRelease(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	live, inUse := o.attach("live")
	before := o.host.Snapshot(t)
	gone, address := o.attach("gone")
	gone.Delete(t)
	refused := func(args []string, says ...string) {
		t.Helper()
		code, printed := o.cnictl(append([]string{"release"}, args...)...)
		if code != 1 {
			t.Errorf("release %q: exit code %d", args, code)
		}
		for _, part := range says {
			if !strings.Contains(printed, part) {
				t.Errorf("release %q does not say %q:\n%s", args, part, printed)
			}
		}
	}
	refused([]string{address}, "demo/gone/eth0", "it is not a minute old", "cnictl del demo --id gone --ifname eth0")
	o.age()
	refused([]string{inUse}, "it is lent to demo/live/eth0, for 5m, and that is in use: its network namespace "+live.Path()+" is there", "stop the container")
	refused([]string{address, "--valid", "gone/eth0"}, "it is named as valid")
	if printed := o.must("release", address, "--dry-run"); !strings.Contains(printed, address+" would be released: it is lent to demo/gone/eth0, and its network namespace") || !strings.Contains(printed, "with it: address fd00:88::") {
		t.Error(printed)
	}
	if !strings.Contains(o.leases(), "/"+address+"\n") {
		t.Error("it is gone after --dry-run")
	}
	for _, elsewhere := range []string{"10.88.0.250", "192.0.2.1", "2001:db8::1"} {
		if printed := o.must("release", elsewhere); !strings.Contains(printed, elsewhere+" is free: nobody has it") {
			t.Error(printed)
		}
	}
	if printed := o.must("release", address, "--network", "other"); !strings.Contains(printed, "is free") {
		t.Error(printed)
	}

	var doc struct {
		Held bool
		Item struct {
			Owner, Outcome string
			Held           []struct{ What string }
		}
	}
	if err := json.Unmarshal([]byte(o.must("release", address, "--network", "demo", "--json")), &doc); err != nil || !doc.Held || doc.Item.Owner != "demo/gone/eth0" || doc.Item.Outcome != "removed" || len(doc.Item.Held) != 4 {
		t.Errorf("%v %+v", err, doc)
	}
	if diff := before.Diff(o.host.Snapshot(t), "file /var/lib/cni/networks/.cnibox", "file /var/lib/cni/networks/demo/last_reserved_ip", "file /run/netns"); diff != "" {
		t.Errorf("left:\n%s", diff)
	}
	if err := o.host.Ping(inUse, timeout); err != nil {
		t.Error(err)
	}

	o.host.MustRun(t, "rm", resultsDir+"/demo-live-eth0")
	refused([]string{inUse}, "it is lent to demo/live/eth0", "that is in use: its link veth")
	o.host.MustRun(t, "sh", "-c", "cd /var/lib/cni/networks/demo; touch 10.88.0.77; touch -d '2 minutes ago' 10.88.0.78")
	refused([]string{"10.88.0.77"}, "it is lent to nobody, for ", "its file is empty or torn, and not a minute old")
	refused([]string{"10.88.0.78"}, "it is lent to nobody, for 2m", "nothing of network demo goes", "live/eth0", "--valid live/eth0")
	o.must("release", "10.88.0.78", "--valid", "live/eth0")
	if strings.Contains(o.leases(), "10.88.0.78\n") {
		t.Error("the torn lease is there")
	}
	if code, printed := o.cnictl("release", "10.88.0"); code != 2 || !strings.Contains(printed, "no IP address") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
}

// TestReleaseOnOneOfSeveral: two networks lend the same address.
func TestReleaseOnOneOfSeveral(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.host.Feed(t, strings.NewReplacer(`"name": "demo"`, `"name": "second"`, "demo0", "second0").Replace(demo), "sh", "-c", "cat >/etc/cni/net.d/20-second.conflist")
	gone, address := o.attach("gone")
	o.must("add", "second", gone.Path(), "--id", "gone", "--ifname", "eth1")
	gone.Delete(t)
	o.age()
	if code, printed := o.cnictl("release", address); code != 1 || !strings.Contains(printed, "several have "+address) || !strings.Contains(printed, "--network: demo, second") {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	o.must("release", address, "--network", "second")
	if left := o.host.MustRun(t, "find", "/var/lib/cni/networks", "-name", address); left != "/var/lib/cni/networks/demo/"+address+"\n" {
		t.Errorf("leases left: %s", left)
	}
}
