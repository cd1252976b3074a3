package contivk8s

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/cnibox/cnibox/pkg/attach"
	"github.com/cnibox/cnibox/pkg/conf"
	"github.com/cnibox/cnibox/pkg/plugin"
	"github.com/cnibox/cnibox/pkg/result"
	"github.com/cnibox/cnibox/plugins/main/contivk8s/contiv"
)

// config is what the plugin reads of a configuration; docs/plugins/contivk8s.md explains each key.
type config struct {
	attach.Config
	socket  string
	timeout time.Duration // of an ADD
}

const (
	usualTimeout = 60 * time.Second
	mostTimeout  = 200 // seconds, within the limit of an ADD
	mostSocket   = 107 // bytes of a path that a socket can have (unix(7))
)

// parse reads and validates the configuration of an ADD, CHECK or STATUS.
func parse(o *conf.Object) (*config, error) {
	c := &config{socket: contiv.DefaultSocket, timeout: usualTimeout}
	c.DNS = result.ParseDNS(o.Object("dns"))
	o.String("socket", &c.socket)
	if c.socket = cmp.Or(c.socket, contiv.DefaultSocket); !isSocketPath(c.socket) {
		o.Fail("socket", fmt.Sprintf("an absolute path of at most %d bytes", mostSocket), strconv.Quote(c.socket))
	}
	seconds := int(usualTimeout / time.Second)
	o.Int("timeout", &seconds)
	if seconds < 1 || seconds > mostTimeout {
		o.Fail("timeout", fmt.Sprintf("a number of seconds from 1 to %d", mostTimeout), strconv.Itoa(seconds))
	}
	c.timeout = time.Duration(seconds) * time.Second
	return c, o.Err()
}

// locate reads what DEL needs of a configuration, which may be wrong by then.
func locate(o *conf.Object) *config {
	c, err := parse(o.Copy())
	if err != nil {
		c.timeout = usualTimeout
	}
	if !isSocketPath(c.socket) {
		c.socket = contiv.DefaultSocket
	}
	return c
}

func isSocketPath(path string) bool {
	return filepath.IsAbs(path) && len(path) <= mostSocket && !strings.Contains(path, "\x00")
}

// podOf returns the name and the namespace of the pod that the runtime says the container is of.
func podOf(r *plugin.Request) (name, namespace string, err error) {
	const nameKey, namespaceKey, idKey = "K8S_POD_NAME", "K8S_POD_NAMESPACE", "K8S_POD_INFRA_CONTAINER_ID"
	args, err := plugin.Arguments(r.Args, nameKey, namespaceKey, idKey, "K8S_POD_UID")
	if err != nil {
		return "", "", err
	}
	for _, key := range []string{nameKey, namespaceKey} {
		if args[key] == "" || plugin.ValidateName(args[key]) != nil {
			return "", "", invalid("a runtime of Kubernetes sets it; by hand: CNI_ARGS=\"K8S_POD_NAMESPACE=default;K8S_POD_NAME=web\"",
				"CNI_ARGS: %s is %q, which names no pod", key, args[key])
		}
	}
	if id := args[idKey]; id != "" && id != r.ContainerID {
		return "", "", invalid("the runtime must set both to the sandbox's id", "CNI_ARGS: %s is %q, but CNI_CONTAINERID is %q", idKey, id, r.ContainerID)
	}
	return args[nameKey], args[namespaceKey], nil
}

// invalid returns an error about the environment.
func invalid(remedy, format string, args ...any) error {
	return plugin.CodeErrorf(types.ErrInvalidEnvironmentVariables, remedy, format, args...)
}
