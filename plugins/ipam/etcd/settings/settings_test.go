package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
)

// read reads a configuration as ADD does.
func read(t *testing.T, ipam string) (*Settings, error) {
	t.Helper()
	o, err := conf.Parse([]byte(`{"cniVersion":"1.1.0","name":"lan","type":"macvlan","ipam":` + ipam + `}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load(&plugin.Request{Command: plugin.Add, Key: plugin.Key{Network: "lan", ContainerID: "web", IfName: "eth0"}, Version: "1.1.0", Config: o}); err != nil {
		return nil, err
	}
	s, err := Read(o.Object("ipam"))
	if err == nil {
		err = s.Identify()
	}
	return s, err
}

func TestSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("a b\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := read(t, `{"type":"etcd","subnet":"10.88.0.0/24","etcd":{"endpoints":["http://192.0.2.1:2379"],"host":"node1"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if c.Prefix != "/cnibox" || c.Timeout != 5*time.Second || c.Grace != 7*24*time.Hour || c.Host != "node1" {
		t.Errorf("defaults are %+v", c)
	}
	c, err = read(t, `{"type":"etcd","subnet":"10.88.0.0/24","dataDir":"/x","etcd":{"endpoints":["https://192.0.2.1:2379","https://[2001:db8::1]:2379"],"host":"n",
		"prefix":"/a/b","username":"cni","passwordFile":"`+file+`","timeoutSeconds":60,"graceSeconds":5,"caFile":"/ca"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if c.Prefix != "/a/b" || c.Timeout != time.Minute || c.Grace != 5*time.Second || c.Username != "cni" || c.Password != "a b" || c.CAFile != "/ca" {
		t.Errorf("read as %+v", c)
	}
}

func TestSettingsThatAreWrong(t *testing.T) {
	for _, tt := range []struct{ etcd, want string }{
		{`{}`, `key "ipam.etcd.endpoints" is missing`},
		{`{"endpoints":[]}`, `key "ipam.etcd.endpoints" is missing`},
		{`{"endpoints":["192.0.2.1:2379"]}`, `"192.0.2.1:2379" is no endpoint`},
		{`{"endpoints":["http://192.0.2.1"]}`, `"http://192.0.2.1" is no endpoint`},
		{`{"endpoints":["unix://x:1"]}`, `is no endpoint`},
		{`{"endpoints":["http://192.0.2.1:2379","https://192.0.2.2:2379"]}`, `"https://192.0.2.2:2379" is no endpoint, or not of the same kind`},
		{`{"endpoints":["https://192.0.2.1:2379"],"certFile":"/x"}`, `belong together`},
		{`{"endpoints":["http://192.0.2.1:2379"],"prefix":"x"}`, `"x" is no prefix`},
		{`{"endpoints":["http://192.0.2.1:2379"],"prefix":"/"}`, `"/" is no prefix`},
		{`{"endpoints":["http://192.0.2.1:2379"],"prefix":"/a/"}`, `"/a/" is no prefix`},
		{`{"endpoints":["http://192.0.2.1:2379"],"prefix":"/a/../b"}`, `is no prefix`},
		{`{"endpoints":["http://192.0.2.1:2379"],"host":"localhost"}`, `"localhost" can't stand for this host`},
		{`{"endpoints":["http://192.0.2.1:2379"],"host":"a/b"}`, `"a/b" can't stand for this host`},
		{`{"endpoints":["http://192.0.2.1:2379"],"host":"n","passwordFile":"/none"}`, `ipam.etcd.passwordFile`},
		{`{"endpoints":["http://192.0.2.1:2379"],"host":"n","timeoutSeconds":0}`, `ipam.etcd.timeoutSeconds`},
		{`{"endpoints":["http://192.0.2.1:2379"],"host":"n","graceSeconds":4}`, `ipam.etcd.graceSeconds`},
		{`{"endpoints":"http://192.0.2.1:2379"}`, `ipam.etcd.endpoints`},
	} {
		_, err := read(t, `{"type":"etcd","subnet":"10.88.0.0/24","etcd":`+tt.etcd+`}`)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.etcd, err, tt.want)
		}
	}
}
