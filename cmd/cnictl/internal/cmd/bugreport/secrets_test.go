package bugreport

import (
	"strings"
	"testing"

	"github.com/cnibox/cnibox/plugins/known"
)

func TestScrub(t *testing.T) {
	const secret = "hunter2hunter2"
	for _, text := range []string{
		`password: ` + secret,
		`password="` + secret + `" user=me`,
		`{"etcd":{"password":"` + secret + `","n":1}}`,
		`msg="config {\"auth_token\":\"` + secret + `\"} is wrong"`,
		`db_passwd='` + secret + ` with spaces'`,
		`--api-key ` + secret + ` --verbose`,
		`--client-secret="` + secret + `"`,
		`Authorization: Bearer ` + secret,
		`sent Bearer ` + secret + ` to it`,
		`https://root:` + secret + `@10.0.0.1:2379/v2`,
		`PrivateKey = ` + secret,
		"-----BEGIN RSA PRIVATE KEY-----\n" + secret + "\n-----END RSA PRIVATE KEY-----",
		"-----BEGIN PRIVATE KEY-----\n" + secret + " and here the file was cut",
		`client-key-data: ` + secret,
		`CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=web;FIRST=` + secret + `;TOKEN=` + secret + ` CNI_IFNAME=eth0`,
		`env: "CNI_ARGS=A=` + secret + `;B=1"`,
		`GET https://` + secret + `@10.0.0.1:2379/v2`,
		`GET https://s3.example/x?X-Amz-Signature=` + secret + `&y=1`,
		`dsn me:` + secret + `@tcp(10.0.0.1:3306)/db`,
		`postgres://me:` + secret + `@10.0.0.1/db`,
		`curl -u me:` + secret + ` http://10.0.0.1`,
		`curl --user=me:` + secret + ` http://10.0.0.1`,
		`psk ` + secret,
		`X-Vault-Session: ` + secret,
		`a cookie: ` + secret + `; and more`,
		`eyJhbGciOiJIUzI1NiJ9.` + secret + `.` + secret,
	} {
		if got := string(newSecrets(known.Plugins).scrub([]byte(text))); strings.Contains(got, secret) || !strings.Contains(got, leftOut) {
			t.Errorf("of %s is left:\n%s", text, got)
		}
	}
	for _, text := range []string{
		`{"metainfo": {"version": "1.0.6"}}, {"match": {"left": {"meta": {"key": "l4proto"}}}}`,
		`-A POSTROUTING -s 10.88.0.0/24 -m comment --comment "demo/web/eth0" -j MASQUERADE`,
		`net/ipv4/tcp_keepalive_time = 7200`,
		`CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web`,
		`default via 10.0.0.1 dev eth0 proto dhcp`,
		`http://10.0.0.1:2379`,
		`12: veth3f2a1b0c@if2: <BROADCAST,UP> mtu 1500 link/ether 02:00:00:00:00:01 link-netnsid 0`,
		`vlan100@eth0`,
		`the-password-check is wrong`,
	} {
		if got := string(newSecrets(known.Plugins).scrub([]byte(text))); got != text {
			t.Errorf("%s\nhas become\n%s", text, got)
		}
	}
}

// TestKnownSecrets: what one place has shown to be secret is looked for in all others, but for what is too short to say.
func TestKnownSecrets(t *testing.T) {
	s := newSecrets(known.Plugins)
	if _, err := s.document([]byte(`{"password": "swordfish", "token": "swordfish and \"more\"", "pin_secret": "abc"}`)); err != nil {
		t.Fatal(err)
	}
	got := string(s.scrubKnown([]byte(`login swordfish failed, swordfish and "more" too, and {\"x\":\"swordfish and \\\"more\\\"\"}; abc`)))
	if want := `login *** failed, *** too, and {\"x\":\"*** and \\\"more\\\"\"}; abc`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if n := s.count(); n != 3 {
		t.Errorf("%d values are left out, want 3", n)
	}
}

func TestDocument(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"keys", `{"name": "demo", "plugins": [{"type": "x", "etcd": {"user": "me", "Password": "p", "keyFile": "/k", "tls": true, "auth": {"a": ["b", 1, null]}}}]}`,
			`{"name": "demo", "plugins": [{"type": "x", "etcd": {"user": "me", "Password": "***", "keyFile": "***", "tls": true, "auth": {"a": ["***", "***", null]}}}]}`},
		{"arguments", `{"cniArgs": [["IgnoreUnknown", "1"], ["K8S_POD_NAME", "web"], ["MAGIC", "m"], ["odd"], []]}`,
			`{"cniArgs": [["IgnoreUnknown", "1"], ["K8S_POD_NAME", "web"], ["MAGIC", "***"], ["odd"], []]}`},
		{"capabilities", `{"capabilityArgs": {"mac": "02:00:00:00:00:01", "io.kubernetes.cri.pod-annotations": {"x": "y"}}, "args": {"cni": {"l": "v"}}}`,
			`{"capabilityArgs": {"mac": "02:00:00:00:00:01", "io.kubernetes.cri.pod-annotations": {"x": "***"}}, "args": {"cni": {"l": "***"}}}`},
		{"of another form", `{"cniArgs": "x", "capabilityArgs": [1], "n": 12345678901234567890}`, `{"cniArgs": "x", "capabilityArgs": [1], "n": 12345678901234567890}`},
	} {
		got, err := newSecrets(known.Plugins).document([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		want, _ := newSecrets(known.Plugins).document([]byte(c.want))
		if string(got) != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, want)
		}
	}
}

// TestWhatMayBeSeen: of a configuration are seen the keys that our plugins declare, and of others little more than their names.
func TestWhatMayBeSeen(t *testing.T) {
	const secret = "hunter2hunter2"
	s := newSecrets(known.Plugins)
	got, err := s.document([]byte(`{"cniVersion": "1.0.0", "name": "demo", "apiServer": "` + secret + `", "plugins": [
		{"type": "bridge", "bridge": "cni0", "mtu": 1400, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/8"}]], "server": "` + secret + `"}, "note": "` + secret + `"},
		{"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}},
		{"type": "calico", "capabilities": {"portMappings": true}, "mtu": "` + secret + `", "bridge": "` + secret + `", "env": {"A": "` + secret + `"}, "args": ["` + secret + `"],
		 "ipam": {"type": "calico-ipam", "url": "https://` + secret + `@10.0.0.1"}, "headers": {"x": ["` + secret + `"]}, "dns": {"options": ["` + secret + `"]}},
		{"type": "host-local", "dataDir": "https://me:` + secret + `@host/"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	text := string(s.scrub(got))
	if strings.Contains(text, secret) {
		t.Errorf("a secret is left:\n%s", text)
	}
	for _, want := range []string{`"cniVersion": "1.0.0"`, `"name": "demo"`, `"type": "calico"`, `"portMappings": true`, `"type": "calico-ipam"`, `"bridge": "cni0"`, `"mtu": 1400`, `"subnet": "10.0.0.0/8"`,
		`"net.core.somaxconn": "500"`, `"apiServer": "***"`, `"headers": {`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not seen:\n%s", want, text)
		}
	}
}

// TestBrokenDocument shows the form of what is no JSON, and none of its values.
func TestBrokenDocument(t *testing.T) {
	for text, want := range map[string]string{
		`{"name": "demo", "plugins": [{"type": "bri`: `{"name": "***", "plugins": [{"type": "***"`,
		`{"a": "x" "b": 12, }`:                       `{"a": "***" "***": **, }`,
		`{"a": "with \" and : in it": true`:          `{"a": "***": ****`,
		`{'name': 'demo'}`:                           `{******: ******}`,
		"{\n  \"token\": hunter2\n}\n":               "{\n  \"token\": *******\n}\n",
		`{"ok": 1} {"more": "x"}`:                    `{"ok": *} {"more": "***"}`,
		`"`:                                          `"***"`,
		"\x00\xff":                                   "**",
		``:                                           ``,
	} {
		got, err := newSecrets(known.Plugins).document([]byte(text))
		if string(got) != want || err == nil {
			t.Errorf("%s\ngot  %s (error %v)\nwant %s", text, got, err, want)
		}
	}
}

// FuzzBrokenDocument: no value is left of what is no JSON.
func FuzzBrokenDocument(f *testing.F) {
	f.Add(`{"a": "`, `"}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "hunter2hunter2"
		text := before + `"x": "` + secret + `"` + after
		clean, err := newSecrets(known.Plugins).document([]byte(text))
		if err != nil && strings.Contains(string(clean), secret) && !strings.HasSuffix(strings.TrimSpace(before), `"`) && !strings.HasPrefix(strings.TrimSpace(after), ":") {
			t.Errorf("of %q is left %q", text, clean)
		}
	})
}
