package operator

// alone is a network on a segment of the host.
const alone = `{"cniVersion": "1.0.0", "name": "demo", "plugins": [{"type": "macvlan", "master": "lan0"}]}`

// faultsOfState are those of what is written down, and of what is left over.
var faultsOfState = []fault{
	{code: "state-read-only", plant: shell("mount -o remount,ro /var/lib/cni"), works: adds},
	{code: "state-full", plant: shell("mount -o remount,size=64k /var/lib/cni; dd if=/dev/zero of=/var/lib/cni/waste bs=1k 2>/dev/null || :"), works: adds, remedy: shell("rm /var/lib/cni/waste")},
	{code: "network-not-ready", config: alone, pods: []string{}, before: shell("ip link add lan0 up type bridge"), works: adds,
		plant: shell("ip link delete lan0"), remedy: shell("ip link add lan0 up type bridge")},
	{code: "network-in-two-caches",
		plant: func(p *clinic) {
			p.must("add", "demo", p.host.NewPod(p, "other").Path(), "--id", "other", "--cache-dir", "/var/lib/cni/multus")
		},
		remedy: func(p *clinic) { p.must("del", "demo", "--id", "other", "--cache-dir", "/var/lib/cni/multus") }},
	{code: "cache-torn", pods: []string{"web", "db"}, plant: shell("truncate -s 100 " + resultsDir + "/demo-web-eth0")},
	{code: "cache-torn", kind: "of nobody", plant: shell("touch " + resultsDir + "/demo-gone-eth0")},
}
