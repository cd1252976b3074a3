package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

// Where each host has its certificates.
const caFile, certFile, keyFile, passwordFile = "/run/tls/ca", "/run/tls/cert", "/run/tls/key", "/run/tls/password"

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{}
	a.certificate, a.key, _ = a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) sign(t testing.TB, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	a.serial++
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(a.serial), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, by := a.certificate, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made, key, der
}

// pair returns a certificate that a server and a client can have, and its key, in PEM.
func (a *authority) pair(t testing.TB, ip string) (certificate, key []byte) {
	t.Helper()
	_, private, der := a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: ip}, IPAddresses: []net.IP{net.ParseIP(ip)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	text, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})
}

// install gives each host its certificate.
func (a *authority) install(t testing.TB, c *cluster) {
	t.Helper()
	for _, h := range c.hosts {
		certificate, key := a.pair(t, h.address)
		h.MustRun(t, "mkdir", "-p", "/run/tls")
		for path, text := range map[string][]byte{certFile: certificate, keyFile: key, passwordFile: []byte("secret\n"),
			caFile: a.text()} {
			h.Feed(t, string(text), "sh", "-c", "cat >"+path)
		}
	}
}

// text is the authority's own certificate in PEM.
func (a *authority) text() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

func (a *authority) arguments() []string {
	return []string{"--client-cert-auth", "--trusted-ca-file", caFile, "--cert-file", certFile, "--key-file", keyFile,
		"--peer-client-cert-auth", "--peer-trusted-ca-file", caFile, "--peer-cert-file", certFile, "--peer-key-file", keyFile}
}

// keys are those of ipam.etcd.
func (a *authority) keys() map[string]any {
	return map[string]any{"caFile": caFile, "certFile": certFile, "keyFile": keyFile, "username": "cni", "passwordFile": passwordFile}
}

func (a *authority) client(t testing.TB) *tls.Config {
	t.Helper()
	pair, err := tls.X509KeyPair(a.pair(t, "172.31.8.254"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
}

// TestSecure has members that want certificates, and a user who may write below one prefix.
func TestSecure(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{authority: newAuthority(t)})
	ctx := context.Background()
	for _, do := range []func() error{
		func() error { _, err := c.client.UserAdd(ctx, "root", "root"); return err },
		func() error { _, err := c.client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.client.RoleAdd(ctx, "addresses"); return err },
		func() error {
			_, err := c.client.RoleGrantPermission(ctx, "addresses", prefix+"/", clientv3.GetPrefixRangeEnd(prefix+"/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := c.client.UserAdd(ctx, "cni", "secret"); return err },
		func() error { _, err := c.client.UserGrantRole(ctx, "cni", "addresses"); return err },
		func() error { _, err := c.client.AuthEnable(ctx); return err },
	} {
		eventually(t, do)
	}
	c.client = c.dial(t, clientv3.Config{Username: "root", Password: "root"})
	h, n := c.hosts[0], network{name: "lan", ranges: `[[{"subnet":"10.70.0.0/24"}]]`}
	got := h.add(t, "web", n)
	c.holds(t, n, holding{}.set(h, "web", got...))
	h.must(t, "STATUS", "", n)
	h.MustRun(t, "sh", "-c", "echo wrong >/run/tls/wrong")
	h.Feed(t, string(newAuthority(t).text()), "sh", "-c", "cat >/run/tls/other")
	for _, tt := range []struct {
		name  string
		n     network
		code  uint
		words string
	}{
		{"a wrong password", n.with("passwordFile", "/run/tls/wrong"), 999, "etcd refuses"},
		{"an unknown user", n.with("username", "nobody"), 999, "etcd refuses"},
		{"no user", n.with("username", "").with("passwordFile", ""), 999, "etcd refuses"},
		{"another prefix", n.with("prefix", "/other"), 999, "etcd refuses"},
		{"no certificate", n.with("certFile", "").with("keyFile", ""), 11, "no member of the etcd cluster answers"},
		{"another authority", n.with("caFile", "/run/tls/other"), 11, "no member of the etcd cluster answers"},
		{"no file", n.with("caFile", "/run/tls/none"), 7, "/run/tls/none"},
		{"no password file", n.with("passwordFile", "/run/tls/none"), 7, "/run/tls/none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.code == 11 {
				tt.n = tt.n.with("timeoutSeconds", 2)
			}
			h.refuses(t, "ADD", "other", tt.n, tt.code, tt.words)
			t.Logf("%v", h.do(t, "STATUS", "", tt.n).Error)
			h.must(t, "DEL", "other", tt.n)
		})
	}
	h.must(t, "DEL", "web", n)
	c.holds(t, n, holding{})
}
