// Package settings is the configuration of the plugin etcd: what there is of it without the client of etcd, which is linked in cnibox-etcd only.
package settings

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/ipam/ranges"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/state"
	"github.com/cnibox/cnibox/plugins/ipam/etcd/notes"
)

// Settings say where the pool is, and who this host is there.
type Settings struct {
	Endpoints          []string
	Prefix             string
	Host               string // "" is the host's name, until Identify
	Username, Password string
	Timeout            time.Duration // of a call
	Grace              time.Duration // for which a host keeps its addresses after it was last heard of

	CAFile, CertFile, KeyFile string // of TLS

	passwordFile string
}

const (
	defaultPrefix = "/cnibox"

	// The times in seconds.
	defaultTimeout, leastTimeout, mostTimeout = 5, 1, 60
	defaultGrace, leastGrace, mostGrace       = 7 * 24 * 3600, 5, 365 * 24 * 3600
)

// Load reads the object ipam without the addresses that the runtime asks for.
func Load(r *plugin.Request) (*ranges.Config, error) {
	own, err := ranges.Read(r)
	if err != nil {
		return nil, err
	}
	if _, err = Read(r.Config.Object("ipam")); err == nil {
		err = r.Config.Err()
	}
	return own, err
}

// Read reads what says where the pool is. It is all that DEL and GC need.
func Read(ipam *conf.Object) (*Settings, error) {
	s, dataDir := &Settings{Prefix: defaultPrefix}, notes.DefaultDir
	ipam.String("dataDir", &dataDir)
	o := ipam.Object("etcd")
	o.Strings("endpoints", &s.Endpoints)
	for _, text := range []struct {
		key string
		to  *string
	}{{"prefix", &s.Prefix}, {"host", &s.Host}, {"caFile", &s.CAFile}, {"certFile", &s.CertFile}, {"keyFile", &s.KeyFile}, {"username", &s.Username}, {"passwordFile", &s.passwordFile}} {
		o.String(text.key, text.to)
	}
	s.Timeout = seconds(o, "timeoutSeconds", defaultTimeout, leastTimeout, mostTimeout)
	s.Grace = seconds(o, "graceSeconds", defaultGrace, leastGrace, mostGrace)
	if len(s.Endpoints) == 0 {
		return nil, plugin.ConfigError(`add for example "endpoints": ["https://192.0.2.1:2379"] to ipam.etcd`, "key %q is missing", o.Path("endpoints"))
	}
	for _, e := range s.Endpoints {
		if u, err := url.Parse(e); err != nil || u.Host == "" || u.Port() == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) || u.Scheme != scheme(s.Endpoints[0]) {
			return nil, plugin.ConfigError("write each as http://ADDRESS:PORT, or each as https://ADDRESS:PORT", "key %q: %q is no endpoint, or not of the same kind as the first", o.Path("endpoints"), e)
		}
	}
	if (s.CertFile == "") != (s.KeyFile == "") {
		return nil, plugin.ConfigError("set both, or none", "keys %q and %q belong together", o.Path("certFile"), o.Path("keyFile"))
	}
	if !filepath.IsAbs(s.Prefix) || filepath.Clean(s.Prefix) != s.Prefix || s.Prefix == "/" {
		return nil, plugin.ConfigError("set it to a path such as "+defaultPrefix, "key %q: %q is no prefix", o.Path("prefix"), s.Prefix)
	}
	for key, path := range map[string]string{"caFile": s.CAFile, "certFile": s.CertFile, "keyFile": s.KeyFile, "passwordFile": s.passwordFile} {
		if path != "" && !filepath.IsAbs(path) {
			return nil, plugin.ConfigError("set it to an absolute path", "key %q: %q is no absolute path", o.Path(key), path)
		}
	}
	if !filepath.IsAbs(dataDir) {
		return nil, plugin.ConfigError("set it to an absolute path, such as "+notes.DefaultDir, "key %q: %q is no absolute path", ipam.Path("dataDir"), dataDir)
	}
	return s, nil
}

// IsSecure reports whether the endpoints are of https.
func (s *Settings) IsSecure() bool { return scheme(s.Endpoints[0]) == "https" }

func scheme(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Scheme
}

// seconds reads a time. Where it is out of its bounds the default stands in.
func seconds(o *conf.Object, key string, standard, least, most int) time.Duration {
	n := standard
	o.Int(key, &n)
	if n < least || n > most {
		o.Fail(key, "a number of seconds from "+(time.Duration(least)*time.Second).String()+" to "+(time.Duration(most)*time.Second).String(), "")
		n = standard
	}
	return time.Duration(n) * time.Second
}

// Identify completes settings by what is on this host: its name, which is the kernel's unless one is set, and the password.
func (s *Settings) Identify() error {
	if s.Host == "" {
		s.Host, _ = os.Hostname()
	}
	if err := plugin.ValidateName(s.Host); err != nil || s.Host == "" || s.Host == "localhost" {
		return plugin.ConfigError("set it to a name that no other host has", "key \"ipam.etcd.host\": %q can't stand for this host among others", s.Host)
	}
	if s.passwordFile == "" {
		return nil
	}
	if !s.IsSecure() {
		return plugin.ConfigError("use endpoints of https with caFile, or no user", "key \"ipam.etcd.passwordFile\": over http everybody on the way can read the password")
	}
	if file, err := os.Stat(s.passwordFile); err == nil && file.Mode().Perm()&0o077 != 0 {
		return plugin.ConfigError("`chmod 600 "+s.passwordFile+"`, and set another password", "key \"ipam.etcd.passwordFile\": others than its owner can read or write %s (mode %o)", s.passwordFile, file.Mode().Perm())
	}
	text, err := state.Read(s.passwordFile)
	if err != nil {
		return plugin.ConfigError("correct the path", "key \"ipam.etcd.passwordFile\": %w", err)
	}
	s.Password = string(trimmed(text))
	return nil
}

// trimmed returns a text without the end of its line.
func trimmed(text []byte) []byte {
	for len(text) > 0 && (text[len(text)-1] == '\n' || text[len(text)-1] == '\r') {
		text = text[:len(text)-1]
	}
	return text
}

// Configuration is the part of the plugin that says what it reads.
type Configuration struct{}

// Parse implements plugin.Configured.
func (Configuration) Parse(r *plugin.Request) error {
	c, err := Load(r)
	if err != nil {
		return err
	}
	return c.ReadRequests(r)
}

// Pools returns what a configuration hands out addresses from.
func (Configuration) Pools(config *conf.Object) ([]ranges.Pool, error) {
	c, err := ranges.Read(&plugin.Request{Command: plugin.Status, Config: config, Version: plugin.CurrentVersion})
	if err != nil {
		return nil, err
	}
	return c.Pools, nil
}
