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
	"errors"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/cnibox/cnibox/test/netlab"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
	c.SerialNumber, c.NotBefore = big.NewInt(a.serial), time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
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

// pair returns a certificate that a server and a client can have for an hour, and its key, in PEM.
func (a *authority) pair(t testing.TB, ip string) (certificate, key []byte) {
	t.Helper()
	return a.pairUntil(t, ip, time.Time{})
}

func (a *authority) pairUntil(t testing.TB, ip string, end time.Time) (certificate, key []byte) {
	t.Helper()
	_, private, der := a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: ip}, IPAddresses: []net.IP{net.ParseIP(ip)}, NotAfter: end,
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
			h.Feed(t, string(text), "sh", "-c", "umask 077; cat >"+path)
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

// enableUsers lets in the user cni with its password, and another by the name in its certificate. Both may write below one prefix.
func (c *cluster) enableUsers(t testing.TB, byCertificate string) {
	t.Helper()
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
		func() error { _, err := c.client.UserAdd(ctx, byCertificate, "never sent"); return err },
		func() error { _, err := c.client.UserGrantRole(ctx, byCertificate, "addresses"); return err },
		func() error { _, err := c.client.AuthEnable(ctx); return err },
	} {
		netlab.Eventually(t, func() error {
			err := do()
			if errors.Is(err, rpctypes.ErrUserAlreadyExist) || errors.Is(err, rpctypes.ErrRoleAlreadyExist) || errors.Is(err, rpctypes.ErrUserEmpty) {
				return nil // the last try was carried out, though its answer got lost; without a name nothing is answered once users are needed
			}
			return err
		})
	}
	c.client = c.dial(t, clientv3.Config{Username: "root", Password: "root"})
}

// TestSecure has members that want certificates, and a user who may write below one prefix.
func TestSecure(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{authority: newAuthority(t)})
	c.enableUsers(t, c.hosts[1].address)
	h, n := c.hosts[0], network{name: "lan", ranges: `[[{"subnet":"10.70.0.0/24"}]]`}
	got := h.add(t, "web", n)
	c.holds(t, n, holding{}.set(h, "web", got...))
	h.awaitReady(t, n)
	byName := n.with("username", "").with("passwordFile", "") // the common name of its certificate is a user
	c.hosts[1].must(t, "ADD", "by-certificate", byName)
	c.hosts[1].must(t, "DEL", "by-certificate", byName)
	h.MustRun(t, "sh", "-c", "umask 077; echo wrong >/run/tls/wrong; echo secret >/run/tls/open; chmod 644 /run/tls/open")
	for _, tt := range []struct {
		name  string
		n     network
		code  uint
		words string
	}{
		{"a wrong password", n.with("passwordFile", "/run/tls/wrong"), 7, "etcd refuses"},
		{"an unknown user", n.with("username", "nobody"), 7, "etcd refuses"},
		{"no user", n.with("username", "").with("passwordFile", ""), 7, "etcd refuses"},
		{"another prefix", n.with("prefix", "/other"), 7, "etcd refuses"},
		{"no file", n.with("caFile", "/run/tls/none"), 7, "/run/tls/none"},
		{"a password that others can read", n.with("passwordFile", "/run/tls/open"), 7, "(mode 644)"},
		{"a password over http", n.with("endpoints", []string{"http://" + h.address + ":2379"}), 7, "over http"},
		{"no password file", n.with("passwordFile", "/run/tls/none"), 7, "/run/tls/none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.refuses(t, "ADD", "other", tt.n, tt.code, tt.words)
			t.Logf("%v", h.do(t, "STATUS", "", tt.n).Error)
			h.must(t, "DEL", "other", tt.n)
		})
	}
	h.must(t, "DEL", "web", n)
	c.holds(t, n, holding{})
}

// TestTLSMistakes calls members in ways in which none of them answers. The error says what is wrong with which member or file.
func TestTLSMistakes(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	c := newCluster(t, options{authority: a})
	h, odd := c.hosts[0], c.hosts[2]
	n := network{name: "lan", ranges: `[[{"subnet":"10.70.0.0/24"}]]`}.with("username", "").with("passwordFile", "")
	for name, of := range map[string]*authority{"expired": a, "foreign": other} {
		certificate, key := of.pairUntil(t, odd.address, time.Now().Add(-time.Minute))
		if name == "foreign" {
			certificate, key = of.pair(t, odd.address)
		}
		for _, each := range []*host{h, odd} {
			each.Feed(t, string(certificate), "sh", "-c", "cat >/run/tls/"+name)
			each.Feed(t, string(key), "sh", "-c", "cat >/run/tls/"+name+"-key")
		}
	}
	h.Feed(t, string(other.text()), "sh", "-c", "cat >/run/tls/other; echo "+h.address+" first.lan >>/etc/hosts")
	for _, tt := range []struct {
		name  string
		odd   []string // how the third member is started anew
		n     network
		words []string
	}{
		{"another authority", nil, n.with("caFile", "/run/tls/other"), []string{"unknown authority", "/run/tls/other (ipam.etcd.caFile)"}},
		{"the system's authorities", nil, n.with("caFile", ""), []string{"unknown authority", "set ipam.etcd.caFile"}},
		{"another name", nil, n.with("endpoints", []string{"https://first.lan:2379"}), []string{"https://first.lan:2379", "to match first.lan", "ipam.etcd.endpoints"}},
		{"no certificate", nil, n.with("certFile", "").with("keyFile", ""), []string{"wants a certificate of this host", "set certFile and keyFile"}},
		{"an expired certificate", nil, n.with("certFile", "/run/tls/expired").with("keyFile", "/run/tls/expired-key"), []string{"refuses this host's certificate /run/tls/expired, which has expired at"}},
		{"a certificate of another authority", nil, n.with("certFile", "/run/tls/foreign").with("keyFile", "/run/tls/foreign-key"), []string{"refuses this host's certificate /run/tls/foreign", "--trusted-ca-file"}},
		{"http", nil, n.with("endpoints", []string{"http://" + h.address + ":2379"}), []string{"speaks https, and not http", "write https://" + h.address}},
		{"a member that has expired", []string{"--cert-file", "/run/tls/expired", "--key-file", "/run/tls/expired-key"},
			n.with("endpoints", []string{odd.endpoint()}), []string{odd.endpoint(), "expired", "give the member a new certificate"}},
		{"a member without TLS", []string{"--listen-client-urls", "http://" + odd.address + ":2379"},
			n.with("endpoints", []string{odd.endpoint()}), []string{odd.endpoint(), "speaks http, and not https", "write http://" + odd.address}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.odd != nil {
				odd.killMember()
				c.arguments = tt.odd
				odd.startMember(t)
				netlab.Eventually(t, func() error {
					conn, err := odd.DialContext(context.Background(), "tcp", odd.address+":2379")
					if err == nil {
						err = conn.Close()
					}
					return err
				})
			}
			h.refuses(t, "ADD", "web", tt.n, 11, tt.words...)
			h.refuses(t, "STATUS", "", tt.n, 50, tt.words...)
			h.must(t, "DEL", "web", tt.n)
			t.Logf("%v", h.do(t, "STATUS", "", tt.n).Error)
			h.awaitReady(t, n) // other members answer
		})
	}
	h.add(t, "web", n.with("endpoints", []string{odd.endpoint(), h.endpoint()}))
}

// TestLaggingFollower has a user with a password, and a member that hears of everything later than the others. No call fails because that member does
// not know a token yet.
func TestLaggingFollower(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{authority: newAuthority(t)})
	c.enableUsers(t, c.hosts[1].address)
	h, n, lags := c.hosts[0], network{name: "lan", ranges: `[[{"subnet":"10.70.0.0/24"}]]`}, c.hosts[2]
	if c.leader(t) == lags {
		lags = c.hosts[1]
	}
	ended, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for isEnded := false; !isEnded; {
			lags.pauseMember()
			netlab.Pause(60 * time.Millisecond)
			lags.continueMember()
			netlab.Pause(20 * time.Millisecond)
			select {
			case <-ended:
				isEnded = true
			default:
			}
		}
	}()
	calls, failed := 2*long(5, 40), 0
	for i := range calls / 2 {
		for _, verb := range []string{"ADD", "DEL"} {
			if r := h.do(t, verb, fmt.Sprint("web", i), n); r.ExitCode != 0 || r.Stderr != "" {
				t.Errorf("%s: %s", verb, r)
				failed++
			}
		}
	}
	close(ended)
	<-done
	t.Logf("%d of %d calls fail", failed, calls)
	c.holds(t, n, holding{})
}
