package operator

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cnibox/cnibox/test/netlab"
)

// bundle is a report that was unpacked.
type bundle struct {
	*testing.T
	names []string          // in the archive's order
	files map[string]string // by name, without the directory that all are in
}

// unpack reads an archive from the host's files.
func (o *operator) unpack(path string) *bundle {
	o.Helper()
	zip, err := gzip.NewReader(strings.NewReader(o.host.MustRun(o, "cat", path)))
	if err != nil {
		o.Fatal(err)
	}
	b := &bundle{o.T, nil, map[string]string{}}
	for r := tar.NewReader(zip); ; {
		head, err := r.Next()
		if err == io.EOF {
			return b
		}
		if err != nil {
			o.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			o.Fatal(err)
		}
		name, inside := strings.CutPrefix(head.Name, "bugreport/")
		if !inside || strings.Contains(name, "..") || head.Mode != 0o600 {
			o.Errorf("the archive has %q with mode %o", head.Name, head.Mode)
		}
		b.names, b.files[name] = append(b.names, name), string(text)
	}
}

// has reports whether a file of the report has all of some texts in it.
func (b *bundle) has(name string, texts ...string) {
	b.Helper()
	text, ok := b.files[name]
	if !ok {
		b.Errorf("%s is not in the report, which has %q", name, b.names)
		return
	}
	for _, want := range texts {
		if !strings.Contains(text, want) {
			b.Errorf("%q is not in %s:\n%.3000s", want, name, text)
		}
	}
}

// errors returns the parts that say that they could not read something.
func (b *bundle) errors() (parts []string) {
	for _, name := range b.names {
		if part, ok := strings.CutSuffix(name, ".error"); ok {
			parts = append(parts, part)
		}
	}
	return parts
}

// without fails if a text is anywhere in the report, also as base64.
func (b *bundle) without(secret string) {
	b.Helper()
	forms := []string{secret}
	for shift := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat(" ", shift) + secret))
		forms = append(forms, encoded[4:len(encoded)-4])
	}
	for name, text := range b.files {
		for _, form := range forms {
			if i := strings.Index(name+text, form); i >= 0 {
				b.Errorf("%s has the secret %s: …%.200s", name, secret, (name + text)[max(0, i-100):])
			}
		}
	}
}

// program puts a program into a directory that is first in the PATH of calls with the environment that it returns.
func (o *operator) programs(scripts map[string]string) (env []string) {
	o.Helper()
	dir := o.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			o.Fatal(err)
		}
	}
	return append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
}

// report has the tool write a report with an environment, and returns what it printed.
func (o *operator) report(env []string, args ...string) (printed string) {
	o.Helper()
	cmd := o.host.Command(netlab.Cnictl(o), append([]string{"bugreport"}, args...)...)
	var out bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &out
	if err := o.host.Run(cmd); err != nil {
		o.Fatalf("bugreport: %v\n%s", err, &out)
	}
	return out.String()
}

// TestBugreport writes all that is known of a node on which all is well.
func TestBugreport(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.must("add", "demo", o.host.NewPod(t, "web").Path(), "--id", "web", "--publish", "8080:80")
	gone, _ := o.attach("gone")
	gone.Delete(t)
	o.must("log", "on")
	o.must("add", "demo", o.host.NewPod(t, "db").Path(), "--id", "db")
	before := o.host.Snapshot(t)
	printed := o.must("bugreport", "-o", "/run/report.tar.gz")
	if !strings.Contains(printed, "/run/report.tar.gz: ") || !strings.Contains(printed, "before you send it") {
		t.Errorf("it printed:\n%s", printed)
	}
	if mode := o.host.MustRun(t, "stat", "-c", "%a", "/run/report.tar.gz"); mode != "600\n" {
		t.Errorf("the archive has mode %s", mode)
	}
	b := o.unpack("/run/report.tar.gz")
	o.host.MustRun(t, "rm", "/run/report.tar.gz")
	if diff := before.Diff(o.host.Snapshot(t)); diff != "" {
		t.Errorf("the report has changed the node:\n%s", diff)
	}
	b.has("show.json", `"containerID": "web"`, `"hostPort": 8080`, `"state": "gone"`)
	b.has("networks.json", `"network": "demo"`, `"subnet": "10.88.0.0/24"`)
	b.has("files/etc/cni/net.d/10-demo.conflist", `"isDefaultGateway": true`)
	b.has("files/var/lib/cni/results/demo-web-eth0", `"hostPort": 8080`, `"bridge": "demo0"`, `"10.88.0.2/24"`)
	b.has("gc.json", `"goes"`, `"containerID": "gone"`)
	b.has("doctor.json", `"findings"`, `"code": "backend"`)
	b.has("metrics.prom", `cnibox_attachments{network="demo",state="gone"} 1`)
	b.has("log-status.json", `"on": true`)
	b.has("log.json", `"plugin": "portmap"`, `"containerID": "db"`, `"10.88.0.4/24"`)
	b.has("plugins.json", `"/opt/cni/bin/portmap"`, `"runs": "/opt/cni/bin/cnibox"`, `"sha256"`, `"is": "cnibox"`, `"version": "v`, `path\tgithub.com/cnibox/cnibox/cmd/cnibox\n`)
	b.has("network/host.json", `"name": "demo0"`, `10.88.0.1/24`, `"kind": "veth"`)
	b.has("nftables.txt", "table inet cnibox", "demo/web/eth0")
	b.has("programs/ip-link.txt", "$ ip -d -s link\n", "demo0", "bridge forward_delay")
	b.has("kernel/sysctl.txt", "net/ipv4/ip_forward = 1\n", "net/ipv4/conf/all/rp_filter = ")
	b.has("kernel/version", "Linux ")
	b.has("processes.txt")
	b.has("firewalld.txt", "running: false")
	b.has("mounts.txt", "/run/netns/web")
	b.has("directories.txt", "/etc/cni/net.d/10-demo.conflist", "/var/lib/cni/networks/demo")
	b.has("versions.txt", "$ nft --version\nnftables v", "$ uname -a\nLinux ")
	inside := 0
	for _, name := range b.names {
		if strings.HasPrefix(name, "network/namespace-") && strings.Contains(b.files[name], `/run/netns/web`) {
			b.has(name, `10.88.0.2/24`, `0.0.0.0/0 via 10.88.0.1`, `"kind": "veth"`, `IPv6 ip rule 32766: `)
			inside++
		}
	}
	if inside != 1 {
		t.Errorf("%d namespaces are the container's, of %q", inside, b.names)
	}
	for _, part := range []string{"show", "networks", "doctor", "gc", "metrics", "log", "log-status"} {
		if text, failed := b.files[part+".error"]; failed {
			t.Errorf("%s on a node that is well: %s", part, text)
		}
	}
	var manifest struct {
		Version string
		Parts   []struct {
			Part, Reads string
			Files       []struct{ File string }
		}
	}
	if err := json.Unmarshal([]byte(b.files["manifest.json"]), &manifest); err != nil || b.names[0] != "manifest.json" {
		t.Errorf("the manifest: %v, first is %s", err, b.names[0])
	}
	for _, p := range manifest.Parts {
		for _, f := range p.Files {
			b.has(f.File)
		}
	}
}

// TestBugreportSecrets plants secrets wherever the report looks. None is in it.
func TestBugreportSecrets(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	secret := func(name string) string { return "hunter2-" + name + "-swordfish" }
	planted := []string{}
	plant := func(name string) string {
		planted = append(planted, secret(name))
		return secret(name)
	}
	write := func(path, text string) {
		o.host.Feed(t, text, "sh", "-c", `mkdir -p "${0%/*}" && cat >"$0"`, path)
	}
	config := strings.Replace(demo, `"bridge": "demo0"`, fmt.Sprintf(`"bridge": "demo0", "etcd": {"password": %q, "endpoints": ["https://root:%s@10.0.0.1:2379"]}, "k8s_auth_token": %q,
		"args": {"cni": {"label": %q}}`, plant("password"), plant("url"), plant("token"), plant("args")), 1)
	write("/etc/cni/net.d/10-demo.conflist", config)
	write("/etc/cni/net.d/20-torn.conflist", fmt.Sprintf(`{"name": "torn", "plugins": [{"type": "bridge", "mystery": %q, "more": "%s`, plant("torn"), plant("tail")))
	write("/etc/cni/net.d/multus.d/multus.kubeconfig", "token: "+plant("kubeconfig"))
	write("/run/flannel/subnet.env", "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_ETCD_PASSWORD="+plant("flannel")+"\n")
	write("/var/lib/cni/results/demo-torn-eth0", fmt.Sprintf(`{"kind": "cniCacheV1", "config": %q, "x": "%s`, base64.StdEncoding.EncodeToString([]byte(config)), plant("cache")))
	pod := o.host.NewPod(t, "web")
	add := o.host.Command(netlab.Cnictl(t), "add", "demo", pod.Path(), "--id", "web")
	add.Env = append(os.Environ(), "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=web;PSEUDONYM="+plant("argument"),
		fmt.Sprintf(`CAP_ARGS={"io.kubernetes.cri.pod-annotations": {"note": %q}, "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}`, plant("annotation")))
	if out, err := o.host.Output(add); err != nil {
		t.Fatal(err, out)
	}
	o.host.MustRun(t, "ip", "link", "set", "demo0", "alias", "api_key="+plant("alias"))
	pod.MustRun(t, "ip", "link", "set", "lo", "alias", "password: "+plant("inside"))
	o.host.MustRun(t, "nft", "add table inet mine { comment \"token="+plant("nft")+"\" ; }")
	o.host.MustRun(t, "iptables", "-A", "INPUT", "-m", "comment", "--comment", "secret="+plant("iptables"), "-j", "ACCEPT")
	o.host.MustRun(t, "cp", "/bin/busybox", "/run/containerd") // a daemon, with secrets in its environment and its command line
	server := o.host.Command("/run/containerd", "-f", "/dev/null", "/token="+plant("line"))
	server.Args[0] = "tail"
	server.Env = []string{"PASSWORD=" + plant("environment")}
	o.host.Background(t, server)
	env := o.programs(map[string]string{
		"journalctl": `cat <<'END'
containerd: "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=web;X=` + plant("journal") + `" failed
kubelet: Authorization: Bearer ` + plant("bearer") + `
crio: the server says that ` + secret("password") + ` is wrong, and ` + secret("argument") + ` too
END`,
		"containerd": "echo containerd --token " + plant("version") + " v1.7; echo password=" + plant("stderr") + " >&2; exit 1",
	})
	o.report(append(env, "CNIBOX_SECRET="+plant("own")), "-o", "/run/report.tar.gz")
	b := o.unpack("/run/report.tar.gz")
	for _, s := range planted {
		b.without(s)
	}
	// What is no secret is there.
	b.has("files/etc/cni/net.d/10-demo.conflist", `"password": "***"`, `"https://***@10.0.0.1:2379"`, `"bridge": "demo0"`)
	b.has("files/etc/cni/net.d/20-torn.conflist", `{"name": "***", "plugins": [{"type": "***", "mystery": "***", "more": "***"`)
	b.has("files/var/lib/cni/results/demo-web-eth0", `"K8S_POD_NAME",`, `"web"`, `"PSEUDONYM",`, `"hostPort": 8080`, `"note": "***"`)
	b.has("programs/journal-runtimes.txt", "K8S_POD_NAME=web;X=***", "says that *** is wrong, and *** too")
	b.has("configurations.error", "20-torn.conflist: it is no JSON")
	b.has("programs/iptables.txt", "INPUT")
	b.has("processes.txt", "containerd")
}

// TestBugreportBroken writes a report where nothing else works.
func TestBugreportBroken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		breaks string   // what a shell does before, in a mount namespace of its own
		failed []string // parts that must say so
		there  []string // files that must be there all the same
	}{
		{"no /proc", "mount -t tmpfs tmpfs /proc", []string{"show", "kernel", "sysctls", "processes", "mounts"}, []string{"files/etc/cni/net.d/10-demo.conflist", "network/host.json", "nftables.txt"}},
		{"no programs", "mount -t tmpfs tmpfs /usr/sbin; mount -t tmpfs tmpfs /usr/local/bin; mount -t tmpfs tmpfs /usr/bin", nil,
			[]string{"show.json", "nftables-summary.txt", "network/host.json", "plugins.json"}},
		{"nothing can be written", "mount -t tmpfs tmpfs /mnt; mount -o remount,bind,ro /run; mount -o remount,bind,ro /var/lib/cni", nil, []string{"show.json", "nftables.txt"}},
		{"no state", "mount -t tmpfs tmpfs /var/lib/cni; mount -t tmpfs tmpfs /etc/cni; mount -t tmpfs tmpfs /opt/cni", []string{"configurations"}, []string{"plugins.json", "nftables.txt", "network/host.json"}},
		{"torn files", "for f in /etc/cni/net.d/* /var/lib/cni/results/* /var/lib/cni/networks/demo/*; do [ ! -f $f ] || truncate -s 20 $f; done", []string{"configurations", "results"},
			[]string{"files/etc/cni/net.d/10-demo.conflist", "files/var/lib/cni/results/demo-web-eth0", "network/host.json"}},
		{"files that are none", "rm -r /etc/cni/net.d/* /var/lib/cni/results/*; mkfifo /etc/cni/net.d/1.conflist /var/lib/cni/results/demo-web-eth0 /opt/cni/bin/fifo; mkdir /etc/cni/net.d/2.conflist; " +
			"ln -s loop /etc/cni/net.d/loop; ln -s loop /etc/cni/net.d/3.conf; ln -s nowhere /opt/cni/bin/dangling", []string{"configurations", "results"}, []string{"plugins.json", "network/host.json"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			o.attach("web")
			o.host.MustRun(t, "mkdir", "-p", "/opt/cni/out")
			o.host.MustRun(t, "mount", "-t", "tmpfs", "tmpfs", "/opt/cni/out")
			// busybox is static, and looked for by nobody.
			o.host.MustRun(t, "cp", "/bin/busybox", "/opt/cni/out/busybox")
			script := "set -e; " + c.breaks + "\nexec 5>&1; exec " + netlab.Cnictl(t) + " bugreport -o - 2>/dev/null"
			archive := o.host.MustRun(t, "unshare", "-m", "sh", "-c", script)
			o.host.Feed(t, archive, "sh", "-c", "cat >/opt/cni/out/report.tar.gz")
			b := o.unpack("/opt/cni/out/report.tar.gz")
			for _, part := range c.failed {
				if !slices.Contains(b.errors(), part) {
					t.Errorf("part %s says of no error; those that do are %q", part, b.errors())
				}
			}
			for _, name := range c.there {
				b.has(name)
			}
		})
	}
}

// TestBugreportHangs writes a report where the bus is silent and programs do not end.
func TestBugreportHangs(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.attach("web")
	var listener net.Listener
	o.host.Do(func() {
		err := os.MkdirAll("/run/dbus", 0o755)
		if err == nil {
			listener, err = net.Listen("unix", "/run/dbus/system_bus_socket")
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	defer listener.Close()
	hangs := "echo begun; sleep 1000 & wait"
	o.report(o.programs(map[string]string{"nft": hangs}), "-o", "/run/report.tar.gz")
	b := o.unpack("/run/report.tar.gz")
	for _, part := range []string{"firewalld", "nftables"} {
		if !slices.Contains(b.errors(), part) {
			t.Errorf("part %s says of no error; those that do are %q", part, b.errors())
		}
	}
	b.has("nftables.txt", "begun")
	b.has("nftables-summary.txt", "table cnibox")
	b.has("programs/ip-rule.txt", "$ ip rule")
	b.has("show.json", "10.88.0.2")
}

// TestBugreportMany reads a node with a thousand attachments, of which one network is asked for.
func TestBugreportMany(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.attach("web")
	o.host.MustRun(t, "bash", "-c", `cd /var/lib/cni/results
		other=$(sed 's/"containerId": *"web"/"containerId":"manyNUMBER"/; s/"networkName": *"demo"/"networkName":"other"/; s/"ips": *\[[^]]*\]/"ips":[]/' demo-web-eth0)
		for i in {1..1000}; do echo "${other/NUMBER/$i}" >other-many$i-eth0; done`)
	o.must("bugreport", "-o", "/run/report.tar.gz")
	b := o.unpack("/run/report.tar.gz")
	b.has("show.json", `"containerID": "many1000"`)
	b.has("files/var/lib/cni/results/other-many1000-eth0", `"many1000"`)
	b.has("files/var/lib/cni/results/demo-web-eth0")
	o.must("bugreport", "-o", "/run/report2.tar.gz", "--network", "demo")
	b = o.unpack("/run/report2.tar.gz")
	b.has("files/var/lib/cni/results/demo-web-eth0")
	for name, text := range b.files {
		if name != "directories.txt" && strings.Contains(name+text, "many1") {
			at := max(strings.Index(text, "many1"), 0)
			t.Errorf("%s is of another network: %s", name, text[max(at-300, 0):min(at+200, len(text))])
		}
	}
}

// TestBugreportInterrupted writes what there is when it is told to end.
func TestBugreportInterrupted(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	cmd := o.host.Command(netlab.Cnictl(t), "bugreport", "-o", "/run/report.tar.gz")
	cmd.Env = o.programs(map[string]string{"nft": "touch /run/begun; sleep 1000"})
	if err := o.host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	o.eventually("[ -e /run/begun ]")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	b := o.unpack("/run/report.tar.gz")
	b.has("files/etc/cni/net.d/10-demo.conflist")
	b.has("journal.error", "it was not read")
}
