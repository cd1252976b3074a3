package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"golang.org/x/net/http2"

	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/settings"
)

// secure returns how to talk to endpoints of https, nil for those of http.
func secure(s *settings.Settings) (*tls.Config, error) {
	if !s.IsSecure() {
		return nil, nil
	}
	c, err := transport.TLSInfo{TrustedCAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile}.ClientConfig()
	if err != nil {
		return nil, plugin.ConfigError("correct caFile, certFile and keyFile in ipam.etcd", "etcd: read the certificates: %w", err)
	}
	c.NextProtos = []string{"h2"}
	return c, nil
}

// errSilent says that a member does not answer, so that nothing is known to be wrong with how it is called.
var errSilent = errors.New("the member does not answer")

// findMistake greets all members, and returns what is wrong with how one is called. It is nil if any answers as it should, or none answers at all.
func (c *cluster) findMistake(ctx context.Context) (mistake error) {
	ctx, end := context.WithTimeout(ctx, time.Second)
	defer end()
	found := make(chan error, len(c.settings.Endpoints))
	for _, endpoint := range c.settings.Endpoints {
		go func() { found <- c.mistakeAt(ctx, endpoint) }()
	}
	for range c.settings.Endpoints {
		err := <-found
		if err == nil {
			return nil
		}
		if !errors.Is(err, errSilent) {
			mistake = err
		}
	}
	return mistake
}

func (c *cluster) mistakeAt(ctx context.Context, endpoint string) error {
	_, at, _ := strings.Cut(endpoint, "://")
	err := greet(ctx, at, c.tls)
	if err == nil {
		return nil
	}
	wrong := func(remedy, format string, args ...any) error {
		return plugin.CodeErrorf(types.ErrTryAgainLater, remedy, "etcd: the member "+endpoint+" "+format, args...)
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return wrong(c.remedyOf(err), "has a certificate that is not to be trusted: %w", err)
	}
	switch {
	case isAlert(err) && c.settings.CertFile == "":
		return wrong("set certFile and keyFile in ipam.etcd to a certificate for this host that the members trust", "wants a certificate of this host: %w", err)
	case isAlert(err):
		return wrong("replace it by one that is valid, and signed by an authority in the members' --trusted-ca-file", "refuses this host's certificate %s%s: %w", c.settings.CertFile, c.expiry(), err)
	case c.tls != nil && greet(ctx, at, nil) == nil:
		return wrong("write http://"+at+" in ipam.etcd.endpoints, or start the member with --cert-file and --key-file", "speaks http, and not https")
	case c.tls == nil:
		if err := greet(ctx, at, &tls.Config{InsecureSkipVerify: true}); err == nil || isAlert(err) {
			return wrong("write https://"+at+" in ipam.etcd.endpoints, and set caFile", "speaks https, and not http")
		}
	}
	return errSilent
}

// greet begins to speak HTTP/2, and waits for the first frame of the answer.
func greet(ctx context.Context, at string, how *tls.Config) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if how != nil {
		how = how.Clone()
		how.ServerName, _, _ = net.SplitHostPort(at)
		conn = tls.Client(conn, how)
	}
	hello := bytes.NewBufferString(http2.ClientPreface)
	_ = http2.NewFramer(hello, nil).WriteSettings()
	_, _ = hello.WriteTo(conn) // a member that has refused us by then says why to who reads
	_, err = http2.NewFramer(nil, conn).ReadFrame()
	return err
}

// isAlert reports whether a server has ended TLS by an alert.
func isAlert(err error) bool {
	remote, is := errors.AsType[*net.OpError](err)
	return is && remote.Op == "remote error"
}

func (c *cluster) remedyOf(err error) string {
	if _, is := errors.AsType[x509.HostnameError](err); is {
		return "write a name or address that is in the certificate in ipam.etcd.endpoints, or give the member a certificate for this one"
	}
	if invalid, is := errors.AsType[x509.CertificateInvalidError](err); is && invalid.Reason == x509.Expired {
		return "give the member a new certificate; if its time is not over, correct this host's clock"
	}
	if c.settings.CAFile == "" {
		return "set ipam.etcd.caFile to the certificate of the authority that has signed the member's: the system's authorities don't know it"
	}
	return "put the certificate of the authority that has signed the member's into " + c.settings.CAFile + " (ipam.etcd.caFile)"
}

// expiry says when this host's certificate has run out, if it has.
func (c *cluster) expiry() string {
	pair, err := tls.LoadX509KeyPair(c.settings.CertFile, c.settings.KeyFile)
	if err != nil || time.Now().Before(pair.Leaf.NotAfter) {
		return ""
	}
	return ", which has expired at " + pair.Leaf.NotAfter.Format(time.RFC3339)
}
